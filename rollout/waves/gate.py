"""The health gate: waits until workloads, probe and alerts of a data plane are healthy, and stay so for a while."""

import http.client
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tidegate_contracts import eviction_process, proxy_process
from tidegate_contracts.labels import LOADING

from stacks.command import CommandError
from stacks.definition.proxy import PROXY
from stacks.definition.rollout import Alerts, Gate, PortForwardProbe, Probe
from stacks.problems import escaped, shortened
from stacks.redirects import NoRedirects

from .. import health, processes, tools
from ..health import Target
from ..kubectl import Kubectl
from .runner import Interrupted, Show

_SECONDS = 10.0
_ALERTS = {"prometheus": "/api/v1/alerts", "alertmanager": "/api/v2/alerts?active=true&silenced=false&inhibited=false"}
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_LONGEST_WHILE_SETTLING = 1.0
_MOST_LINES = 6
_LONGEST = 300
_METRICS_SECONDS = 5.0
_MOST_FAILURES = 3
_SERIES = re.compile(
    r"tidegate_(?:proxy|eviction)_(?P<name>load_failed_timestamp_seconds|index_seen|model_load_failures_total"
    r"|model_quarantined_timestamp_seconds)\{(?P<labels>.*)\} (?P<value>\S+)"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Pause = Callable[[float], bool]  # Waits for so many seconds. Returns whether to stop.


@dataclass(frozen=True)
class HealthCheck:
    """Checks the health of one data plane, and reports what is missing."""

    gate: Gate
    kubectl: Kubectl
    target: Target
    known: frozenset[str] = frozenset()  # Models that were not loaded before the rollout.
    blind: list[str] = field(default_factory=list)  # Errors of checks of the models.

    def lacking(self) -> list[str]:
        what = "the workloads cannot be checked"
        try:
            if lines := health.lacking(self.kubectl, self.target):
                return lines
            if lines := self._models():
                return lines
            what = "the probe failed"
            if self.gate.probe is not None:
                send(self.gate.probe, self.kubectl, self.target)
            what = "the alerts cannot be read"
            if self.gate.alerts is not None:
                names = firing(self.gate.alerts, self.kubectl, self.target.namespace)
                return [f"alert {name} fires" for name in names]
        except CommandError as error:
            return [f"{what}: {shortened(' '.join(str(error).split()), _LONGEST)}"]
        return []

    def _models(self) -> list[str]:
        """Return models that are not loaded, but were before the rollout. After three failed checks, return none."""
        if len(self.blind) >= _MOST_FAILURES:
            return []
        try:
            failed, unseen = not_loaded(self.kubectl, self.target)
        except CommandError as error:
            self.blind.append(shortened(" ".join(str(error).split()), _LONGEST))
            return []
        self.blind.clear()
        if lines := [f"{model} cannot be loaded" for model in failed if model not in self.known]:
            return lines
        return [f"no proxy has read the models of {replica} yet" for replica in unseen]

    def further(self) -> list[str]:
        try:
            return [*health.warnings(self.kubectl, self.target)]
        except CommandError as error:
            return [f"its events cannot be read: {shortened(' '.join(str(error).split()), _LONGEST)}"]


def await_health(look: HealthCheck, show: Show, pause: Pause, clock: Callable[[], float] = time.monotonic) -> None:
    """Return when nothing has been missing for the settle time. Raise CommandError at the timeout."""
    gate = look.gate
    end = clock() + gate.timeout_seconds
    well_since: float | None = None
    length = _FIRST_PAUSE
    while True:
        lines = look.lacking()
        moment = clock()
        if lines:
            well_since = None
            show(f"waiting: {lines[0]}" + (f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""))
        else:
            well_since = moment if well_since is None else well_since
            settled = moment - well_since
            if settled >= gate.settle_seconds:
                return
            show(f"healthy, settling for {gate.settle_seconds - settled:.0f} s")
        if moment >= end:
            if not lines:
                raise CommandError(f"not healthy for {gate.settle_seconds} s within {gate.timeout_seconds} s")
            why = [f"not passed within {gate.timeout_seconds} s:", *why_not_well(look, lines)]
            raise CommandError("\n  ".join(why))
        length = min(length * 1.4, _LONGEST_PAUSE if lines else _LONGEST_WHILE_SETTLING)
        left = end - moment if well_since is None else min(end, well_since + gate.settle_seconds) - moment
        if pause(max(0.0, min(length, left))):
            raise Interrupted


def why_not_well(look: HealthCheck, lines: list[str]) -> list[str]:
    """Return the first lines about what a data plane lacks, and its cluster's warnings."""
    shown = lines[:_MOST_LINES]
    if len(lines) > _MOST_LINES:
        shown.append(f"… and {len(lines) - _MOST_LINES} more")
    return shown + [line for line in look.further()[:_MOST_LINES] if line not in shown]


def not_loaded(kubectl: Kubectl, target: Target) -> tuple[list[str], list[str]]:
    """Return the models that replicas could not load, and the replicas whose models no proxy has read yet.

    A proxy knows the models of preload pools, an eviction policy those of an on-demand replica. Raises CommandError if
    the metrics of a pod cannot be read.
    """
    failed, unseen = set(), set()
    pods = kubectl.find(["pods"], "--namespace", target.namespace, "-l", "app.kubernetes.io/part-of=tidegate")
    ready = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and health.is_ready(pod)]
    labels = [pod["metadata"].get("labels", {}) for pod in ready]
    proxies = [pod for pod, of in zip(ready, labels, strict=True) if of.get("app.kubernetes.io/name") == PROXY]
    policies = [pod for pod, of in zip(ready, labels, strict=True) if of.get(LOADING) == "on-demand"]
    scraped = [(pod, proxy_process.ADMIN_PORT) for pod in proxies[:1]]  # each proxy sees every replica
    scraped += [(pod, eviction_process.ADMIN_PORT) for pod in policies]
    for pod, port in scraped:
        name = pod["metadata"]["name"]
        for line in _metrics(kubectl, target.namespace, name, port).splitlines():
            if (series := _SERIES.match(line)) is None:
                continue
            of = dict(_LABEL.findall(series["labels"]))
            if series["name"] == "index_seen":
                unseen |= set() if float(series["value"]) else {of.get("replica", name)}
            elif float(series["value"]) > 0:
                version = f" version {of['version']}" if "version" in of else ""
                where = f"{of['server']}/{of['pool']}" if {"server", "pool"} <= of.keys() else name
                failed.add(escaped(f"model {of.get('model', '')}{version} of {where}"))
    return sorted(failed), sorted(map(escaped, unseen))


def _metrics(kubectl: Kubectl, namespace: str, pod: str, port: int) -> str:
    """Return a pod's metrics, through the API server or, if NetworkPolicies refuse that, through the kubelet."""
    place = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{proxy_process.METRICS_PATH}"
    try:
        return kubectl.run("get", "--raw", place, seconds=_METRICS_SECONDS).stdout
    except CommandError:
        with _forwarded(kubectl, namespace, f"pod/{pod}", port, _METRICS_SECONDS) as here:
            return _request(f"http://127.0.0.1:{here}{proxy_process.METRICS_PATH}", tunnel=True).decode(
                errors="replace"
            )


def send(probe: Probe, kubectl: Kubectl, target: Target) -> None:
    """Send the probe. Raise CommandError if it fails."""
    if isinstance(probe, PortForwardProbe):
        with _forwarded(kubectl, target.namespace, f"service/{PROXY}", target.port) as port:
            address = f"{'https' if target.https else 'http'}://127.0.0.1:{port}{probe.path}"
            _request(address, probe.body, probe.token_variable, tunnel=True)
    else:
        _request(probe.url, probe.body, probe.token_variable)


def firing(alerts: Alerts, kubectl: Kubectl, namespace: str) -> list[str]:
    """Return the names of the alerts that fire in a namespace. Raise CommandError if they cannot be read."""
    path = _ALERTS[alerts.kind]
    if alerts.service is not None:
        at, scheme = alerts.service, "https:" if alerts.service.https else ""
        place = f"/api/v1/namespaces/{at.namespace}/services/{scheme}{at.name}:{at.port}/proxy{path}"
        response: str | bytes = kubectl.run("get", "--raw", place, seconds=_SECONDS).stdout
    else:
        response = _request(f"{(alerts.url or '').rstrip('/')}{path}")
    try:
        tree = json.loads(response)
        found = tree["data"]["alerts"] if alerts.kind == "prometheus" else tree
        here = [alert for alert in found if alert["labels"].get("namespace") == namespace]
        ours = [alert for alert in here if alert["labels"].get("severity") != "info"]
        states = [alert["state"] if alerts.kind == "prometheus" else alert["status"]["state"] for alert in ours]
        fires = [alert for alert, state in zip(ours, states, strict=True) if state in ("firing", "active")]
        names = {str(alert["labels"].get("alertname", "without a name")) for alert in fires}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CommandError(f"the response of {alerts.kind} is not the expected JSON") from None
    return [escaped(shortened(name)) for name in sorted(names.difference(alerts.ignore))]


def _request(url: str, body: str | None = None, token_variable: str | None = None, *, tunnel: bool = False) -> bytes:
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    if token_variable is not None:
        token = os.environ.get(token_variable)
        if not token:
            raise CommandError(f"the environment variable {token_variable} with the probe's token is not set")
        headers["Authorization"] = f"Bearer {token}"
    request = Request(url, body.encode() if body else None, headers)
    handlers: list[Any] = [NoRedirects()]
    if tunnel:
        handlers += [ProxyHandler({}), HTTPSHandler(context=ssl._create_unverified_context())]
    where = f"{urlsplit(url).path or '/'} of {PROXY}" if tunnel else url
    try:
        with build_opener(*handlers).open(request, timeout=_SECONDS) as response:
            return bytes(response.read(2**24))
    except HTTPError as error:
        error.close()
        raise CommandError(f"{where} responded with {error.code}") from None
    except (URLError, OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise CommandError(f"{where} does not respond: {why}") from None


@contextmanager
def _forwarded(kubectl: Kubectl, namespace: str, to: str, port: int, seconds: float = 3 * _SECONDS) -> Iterator[int]:
    where = ["--context", kubectl.context, "--namespace", namespace, "--address", "127.0.0.1"]
    command = [str(tools.path(tools.KUBECTL)), "port-forward", *where, to, f":{port}"]
    process = processes.started(command, start_new_session=True)
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        output = ""
        for line in process.stdout or ():
            if match := re.search(r"Forwarding from 127\.0\.0\.1:(\d+)", line):
                yield int(match[1])
                return
            output = line.strip() or output
        raise CommandError(f"kubectl port-forward: {output or 'it exited immediately'}")
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
