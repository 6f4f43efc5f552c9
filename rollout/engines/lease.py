"""One run at a time: a Lease in the environment's namespace, held while an engine without an own lock works."""

import getpass
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from subprocess import CompletedProcess

from stacks.command import CommandError
from stacks.problems import escaped

from ..kubectl import Kubectl, KubernetesObject, as_list
from ..terminal import note

NAME = "tidegate-up"
_LONGEST_WAIT = 3600.0
_TOKEN = re.compile(r" \(([0-9a-f]{32})\)$")


@dataclass
class RolloutLease:
    """Whether a run still has its Lease. Another run may have taken it over."""

    namespace: str
    seconds: int = 30  # A holder that has not renewed its Lease for so long counts as dead.
    renewed_every: float = 8.0
    retried_after: float = 1.0  # After a failed request to the API server.
    lost: str = ""  # The new holder, after the Lease was lost.
    version: str = ""  # The resourceVersion of this run's last write.
    identity: str = field(default_factory=lambda: f"{_user()}@{socket.gethostname()}, process {os.getpid()}")
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    """Identifies this run. Hosts and process ids on several machines can be the same."""
    failures: list[str] = field(default_factory=list)  # Errors of writing the Lease that were already printed.

    def ensure_held(self) -> None:
        """Raise CommandError if the Lease is lost, because two runs at a time would undo each other's work."""
        if self.lost:
            raise CommandError(
                f"{_words(self.lost)} took over the work in {self.namespace}, because this run did not renew its"
                f" Lease for {self.seconds} seconds. This run was stopped. The other run finishes the work."
            )


@contextmanager
def acquire_lease(kube: Kubectl, hold: RolloutLease) -> Iterator[RolloutLease]:
    """Hold the Lease of a namespace. Wait while another run holds it, and take it over if that run is dead. A holder is
    dead if it stops renewing the Lease."""
    if not _acquired(kube, hold):
        yield hold
        return
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(kube, hold, over), daemon=True)
    renewing.start()
    try:
        yield hold
    finally:
        over.set()
        renewing.join()
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{hold.namespace}/leases/{NAME}"
        as_written = json.dumps({"preconditions": {"resourceVersion": hold.version}})  # unless another run took it over
        with _noted(hold):
            done = kube.run("delete", "--raw", lease, "-f", "-", stdin=as_written, check=False)
            if done.returncode and "Conflict" not in done.stderr and "NotFound" not in done.stderr:
                raise CommandError(kube.why(done.stderr, "delete"))


@contextmanager
def _noted(hold: RolloutLease) -> Iterator[None]:
    """Print, once for each error, that the Lease cannot be renewed or deleted: a permission may be missing."""
    try:
        yield
    except CommandError as error:
        if str(error) not in hold.failures:
            hold.failures.append(str(error))
            note(f"the Lease in {hold.namespace}: {error}")


def _acquired(kube: Kubectl, hold: RolloutLease) -> bool:
    """Wait for the Lease. Return False if no Leases can be written, so that the run must do without."""
    namespace, end, shown = hold.namespace, time.monotonic() + _LONGEST_WAIT, ""
    seen: dict[str, float] = {}
    lease: KubernetesObject | None = None  # usually there is none: read it only if it cannot be created
    while True:
        holder = _holder(lease)
        # Clocks differ between machines, so measure how long this run has seen no renewal.
        renewed = str((lease["metadata"] if lease else {}).get("resourceVersion"))
        fresh = time.monotonic() - seen.setdefault(renewed, time.monotonic()) < hold.seconds
        if lease is None or not fresh:
            answer = _written(kube, hold, lease)
            if answer.returncode == 0:
                return True
            if "cannot create" in answer.stderr or "cannot update" in answer.stderr:
                note(f"warning: no permission to write a Lease in {namespace}, so another run could work there too.")
                return False
            # Another run created or deleted its Lease first, or there is no namespace.
            faster = ("AlreadyExists", "Conflict") if lease is None else ("Conflict", "NotFound")
            if not any(word in answer.stderr for word in faster):
                raise CommandError(kube.why(answer.stderr, "create"))
        else:
            at_work = f"{_words(holder)} is at work in {namespace}"
            if time.monotonic() > end:
                long = f"{_words(holder)} has been at work in {namespace} for more than an hour"
                raise CommandError(f"{long}. Run this again later.")
            if shown != at_work:
                shown = at_work
                note(f"waiting: {at_work} …")
            time.sleep(1)
        lease = kube.get("lease", NAME, namespace)


def _holder(lease: KubernetesObject | None) -> str:
    return str(lease["spec"].get("holderIdentity", "")) if lease else ""


def _written(kube: Kubectl, hold: RolloutLease, before: KubernetesObject | None) -> "CompletedProcess[str]":
    """Create the Lease, or take it over if it is unchanged. Return the API server's response."""
    times = dict.fromkeys(("acquireTime", "renewTime"), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    seen = {} if before is None else {"resourceVersion": before["metadata"]["resourceVersion"]}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": hold.namespace, **seen},
        "spec": {"holderIdentity": _named(hold), "leaseDurationSeconds": hold.seconds, **times},
    }
    verb, version = "create" if before is None else "replace", "jsonpath={.metadata.resourceVersion}"
    answer = kube.run(verb, "--validate=false", "-o", version, "-f", "-", stdin=as_list([lease]), check=False)
    hold.version = answer.stdout or hold.version
    return answer


def _renew(kube: Kubectl, hold: RolloutLease, over: threading.Event) -> None:
    """Renew the Lease until `over`, and notice if another run has it. A deleted Lease is created again."""
    pause = hold.renewed_every
    while not over.wait(pause) and not hold.lost:
        pause = hold.retried_after
        with _noted(hold):
            lease = kube.get("lease", NAME, hold.namespace)
            if lease is not None and _holder(lease) != _named(hold):
                hold.lost = _holder(lease) or "another run"
            elif (answer := _written(kube, hold, lease)).returncode == 0:
                pause = hold.renewed_every
            elif "Conflict" not in answer.stderr and "AlreadyExists" not in answer.stderr:
                raise CommandError(kube.why(answer.stderr, "renew"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _named(hold: RolloutLease) -> str:
    return f"{hold.identity} ({hold.token})"


def _words(holder: str) -> str:
    """Return a holder without its token, for messages."""
    return escaped(_TOKEN.sub("", holder))
