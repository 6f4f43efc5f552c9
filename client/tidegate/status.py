"""What is served where, and how much it is used: asked of the proxies, which ask their Tritons. Nothing is loaded."""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from tidegate_contracts.environments import ModelFacts, Plane
from tidegate_contracts.message import Message
from tidegate_contracts.triton import ALIAS_PARAMETER

from .calling.credentials import Credential, find_credential
from .calling.inputs import signature_of
from .calling.proxy import VARIABLE, ProxyClient, proxy_url
from .environments import ENVIRONMENTS, environment, load
from .errors import BusyError, NotFoundError, RefusedError, TidegateError, UsageError
from .names import nearest_of


@dataclass(frozen=True)
class KnownProxy:
    """The inference proxy of an environment on one data plane."""

    environment: str
    """Empty where only the proxy's address is known."""
    plane: str
    url: str
    credential: Credential
    facts: Plane | None = None
    """What the definition says of it, where that is known."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that the definition has there; none where only the address is known."""
        return tuple(model.name for model in self.facts.models) if self.facts is not None else ()

    def client(self, seconds: float) -> ProxyClient:
        """Return a client of it, whose calls take so many seconds at most."""
        return ProxyClient(self.url, self.credential, seconds=seconds)


def proxies(
    name: str | None = None, plane: str | None = None, url: str | None = None, *, file: Path | None = None
) -> list[KnownProxy]:
    """Return the proxy at `url`; or those of an environment; or, with neither, of every environment that is known.

    `file` is the path of `environments.json`, by default that of TIDEGATE_ENVIRONMENTS. Raises UsageError,
    NotFoundError.
    """
    if url is not None:
        if name is not None or plane is not None:
            raise UsageError("the proxy's address says where: leave the environment and the data plane out")
        return [KnownProxy("", "", proxy_url(url), find_credential())]
    said = file is not None or ENVIRONMENTS in os.environ
    if name is None and plane is None and not said and os.environ.get(VARIABLE):
        return proxies(url=os.environ[VARIABLE])
    known = load(file)
    credential = find_credential()
    wanted = known.environments if name is None else (environment(name, known),)
    found = [
        KnownProxy(each.name, at.name, proxy_url(at.proxy_url), credential, at)
        for each in wanted
        for at in sorted(each.planes, key=lambda at: at.wave)
        if plane is None or at.name == plane
    ]
    if not found:
        planes = sorted({at.name for each in wanted for at in each.planes})
        what = "the environment lives nowhere" if plane is None else f"there is no data plane {plane!r}"
        raise NotFoundError(what, do="" if plane is None else nearest_of(plane, planes, "data planes"))
    return found


def proxy_of(
    model: str, name: str | None = None, plane: str | None = None, url: str | None = None, *, file: Path | None = None
) -> KnownProxy:
    """Return the one proxy at which a model is called.

    Without a word of where, it is the one that DOMINO_INFERENCE_PROXY names, as of a model endpoint; else the first
    data plane of the environment that has the model, if no other environment has it too. Raises UsageError,
    NotFoundError.
    """
    if name is None and plane is None and url is None and os.environ.get(VARIABLE):
        url = os.environ[VARIABLE]
    found = proxies(name, plane, url, file=file)
    if url is not None:
        return found[0]
    having = [each for each in found if model in each.models]
    if not having:
        names = sorted({name for each in found for name in each.models})
        raise NotFoundError(
            f"no environment that was asked has the model {model!r}", do=nearest_of(model, names, "models")
        )
    environments = list(dict.fromkeys(each.environment for each in having))
    if len(environments) > 1:
        what = f"the model {model} is in {', '.join(environments)}"
        raise UsageError(what, do=f"say which with --environment, or set {VARIABLE}")
    return having[0]


_AT_ONCE: Final = 8
_ANSWER_SECONDS: Final = 15.0
_READY_SECONDS: Final = 3.0
"""For a model of which nothing is in memory where all of it should be."""
Loading = Literal["preload", "on-demand"]
Statistics = dict[str, dict[str, Any]]
"""Triton's statistics of one model, by version."""
Key = tuple[str | None, str]
"""Server, where it is known, and model."""


class VersionStatus(Message):
    """One version of a model; counts are since it was loaded, of one replica."""

    version: str
    ready: bool | None = None
    """None where that could not be told."""
    requests: int = 0
    """Those that were answered."""
    failures: int = 0
    rows: int = 0
    """Rows of batches in them."""
    mean_seconds: float | None = None
    """Of an answered request, in Triton."""
    queue_seconds: float | None = None
    """What of that it waited for its turn."""
    last_used: datetime | None = None
    per_second: float | None = None
    """Requests in the time that was watched; None where both counts are not of one load at one replica."""
    busy: float | None = None
    """Share of the time that was watched in which it was computing; more than 1 where several instances were."""


class ModelStatus(Message):
    """One model on one data plane."""

    environment: str
    plane: str
    model: str
    server: str | None = None
    pool: str | None = None
    loading: Loading | None = None
    state: Literal["ready", "not-ready", "absent", "hidden", "failing"]
    """`absent`: no version of it is in a pool that has all of its models in memory; `hidden`: this caller may not see
    it; `failing`: see `why`. An on-demand model is ready when it can be loaded."""
    why: str = ""
    resident: bool | None = None
    """Whether it is in memory; None where that could not be told."""
    traffic: str
    """Who decides which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`."""
    versions: tuple[VersionStatus, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    max_batch: int | None = None
    """Rows that a request may have; 0: it takes no batches. None where it would have to be loaded to tell."""

    @property
    def heat(self) -> tuple[float, float, int]:
        """How much of the time it was computing; requests a second, and all that were answered, to its versions."""
        return (
            sum(each.busy or 0.0 for each in self.versions),
            sum(each.per_second or 0.0 for each in self.versions),
            sum(each.requests for each in self.versions),
        )


class PlaneStatus(Message):
    """One environment on one data plane."""

    environment: str
    plane: str
    proxy: str
    caller: str = ""
    """As whom the proxy knows the caller."""
    error: str = ""
    """Why nothing could be learned."""
    exit_code: int = 0
    """With which `tidegate` ends for that."""
    unavailable: tuple[str, ...] = ()
    """Pools that gave no statistics, as `server/pool`."""
    models: tuple[ModelStatus, ...] = ()
    """The hottest first."""


def collect(
    asked: Sequence[KnownProxy], model: str | None = None, *, watch_seconds: float = 0, signatures: bool = False
) -> list[PlaneStatus]:
    """Return the status of each, asked at the same time; one that cannot be asked says why and hides no other.

    `watch_seconds`: count twice, so long apart, to tell rates. `signatures`: tell inputs and outputs too, of what is in
    memory. Raises NotFoundError where a model is named that none of those that answered has.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda proxy: _plane(proxy, model, watch_seconds, signatures), asked))
    if model is not None and not any(each.models or each.error for each in found):
        raise NotFoundError(f"there is no model {model!r}", do="`tidegate models` shows all that you may see")
    return found


def _plane(proxy: KnownProxy, model: str | None, watch_seconds: float, signatures: bool) -> PlaneStatus:
    about = {"environment": proxy.environment, "plane": proxy.plane, "proxy": proxy.url}
    try:
        with proxy.client(_ANSWER_SECONDS) as client:
            caller = client.whoami()
            about["environment"] = proxy.environment or caller.environment
            collector = _Collector(client, proxy, about["environment"], model)
            before, began = collector.count(), time.monotonic()
            now, seconds = before, 0.0
            if watch_seconds:
                time.sleep(watch_seconds)
                now, seconds = collector.count(), time.monotonic() - began
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                models = threads.map(
                    lambda key: collector.model(key, before.get(key, {}), now.get(key, {}), seconds, signatures),
                    sorted(now, key=str),
                )
                by_name = sorted(models, key=lambda each: each.model)
                hottest = sorted(by_name, key=lambda each: each.heat, reverse=True)
            lacking = tuple(sorted(collector.unavailable))
            return PlaneStatus(**about, caller=caller.principal, unavailable=lacking, models=tuple(hottest))
    except TidegateError as error:
        return PlaneStatus(**about, error=str(error), exit_code=error.exit_code)


class _Collector:
    """Asks one proxy of one model, or of all."""

    def __init__(self, client: ProxyClient, proxy: KnownProxy, environment: str, model: str | None) -> None:
        self.unavailable: set[str] = set()
        """Pools that gave no statistics, as `server/pool`."""
        self._client = client
        self._environment, self._plane = environment, proxy.plane
        self._only = model
        self._facts: dict[Key, ModelFacts] | None = None
        """What the definition has there; None where only the proxy's address is known."""
        self._loading: dict[tuple[str, str], Loading] = {}
        """By server and pool."""
        if proxy.facts is not None:
            self._facts = {(each.server, each.name): each for each in proxy.facts.models}
            self._loading = {
                (server.name, pool.name): pool.loading for server in proxy.facts.servers for pool in server.pools
            }

    def count(self) -> dict[Key, Statistics]:
        """Return the statistics of each model that there is, by version; empty for what is not in memory."""
        if self._facts is None:
            return {key: said for key, said in self._ask(None, None).items() if self._only in (None, key[1])}
        wanted = {key: facts for key, facts in self._facts.items() if self._only in (None, facts.name)}
        on_demand = {key for key, facts in wanted.items() if self._loading_of(facts) == "on-demand"}
        found: dict[Key, Statistics] = {key: {} for key in wanted}
        for server in sorted({facts.server for key, facts in wanted.items() if key not in on_demand}):
            found |= {key: said for key, said in self._ask(server, None).items() if key in wanted.keys() - on_demand}
        # Of an on-demand pool, only the question for one model finds the replica that has it in memory.
        for key in on_demand:
            found |= self._ask(*key)
        return found

    def model(self, key: Key, before: Statistics, now: Statistics, seconds: float, signatures: bool) -> ModelStatus:
        """Return what there is to say of a model."""
        server, name = key
        facts = None if self._facts is None else self._facts[key]
        loading = None if facts is None else self._loading_of(facts)
        pool = None if facts is None else facts.pool
        resident = None if pool is not None and f"{server}/{pool}" in self.unavailable else bool(now)
        said: dict[str, Any] = {
            "environment": self._environment, "plane": self._plane, "model": name, "server": server, "pool": pool,
            "loading": loading, "resident": resident,
        }  # fmt: skip
        named = () if facts is None else tuple(str(share.version) for share in facts.versions)
        config: Mapping[str, Any] = {}
        absent = loading == "preload" and resident is False
        try:
            ready = self._client.ready(name, server=server, deadline=_READY_SECONDS if absent else None)
            wants_config = signatures or (facts is not None and facts.alias)
            if wants_config and (now or (loading == "preload" and ready)):
                with suppress(TidegateError):  # a model that is not ready has none
                    config = self._client.config(name, server=server)
            said["versions"] = tuple(
                _version(number, self._ready(name, server, number, now), before.get(number), now.get(number), seconds)
                for number in sorted({*now, *named}, key=_as_number)
            )
            said["state"] = "ready" if ready else "absent" if absent else "not-ready"
        except (RefusedError, NotFoundError):
            said["state"] = "hidden"
        except TidegateError as error:
            # The proxy is busy waiting for the alias of a model that is not deployed.
            waits = absent and isinstance(error, BusyError)
            said |= {"state": "absent"} if waits else {"state": "failing", "why": str(error)}
        if signatures and config:
            signature = signature_of(config)
            said["inputs"] = tuple(f"{each}{'?' if each.optional else ''}" for each in signature.inputs)
            said["outputs"] = tuple(map(str, signature.outputs))
            said["max_batch"] = signature.max_batch
        return ModelStatus(**said, traffic=_traffic(facts, config))

    # ---
    def _ask(self, server: str | None, model: str | None) -> dict[Key, Statistics]:
        """Return the statistics of a model, or of all models of a server."""
        try:
            statistics = self._client.statistics(model, server=server)
        except NotFoundError:
            return {}  # nothing there that this caller may inspect
        self.unavailable |= set(statistics.unavailable)
        found: dict[Key, Statistics] = {}
        for entry in statistics.models:
            found.setdefault((server, str(entry["name"])), {})[str(entry.get("version", ""))] = entry
        return found

    def _loading_of(self, facts: ModelFacts) -> Loading | None:
        return self._loading.get((facts.server, facts.pool))

    def _ready(self, name: str, server: str | None, number: str, now: Statistics) -> bool | None:
        try:
            return self._client.ready(name, server=server, version=number)
        except TidegateError:
            return None if number not in now else False


def _version(
    number: str, ready: bool | None, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None, seconds: float
) -> VersionStatus:
    if now is None:
        return VersionStatus(version=number, ready=ready)
    total, earlier = _counts(now), _counts(before or {})
    # Counts that were not there before, or were higher, are those of another replica, or of a model loaded since.
    watched = seconds > 0 and before is not None and all(total[name] >= earlier[name] for name in total)
    since = {name: total[name] - earlier[name] for name in total}
    last = int(now.get("last_inference", 0))
    return VersionStatus(
        version=number,
        ready=ready,
        requests=int(total["requests"]),
        failures=int(total["failures"]),
        rows=int(now.get("inference_count", 0)),
        mean_seconds=total["seconds"] / total["requests"] if total["requests"] else None,
        queue_seconds=total["queued"] / total["requests"] if total["requests"] else None,
        last_used=datetime.fromtimestamp(last / 1000, UTC) if last else None,
        per_second=(since["requests"] + since["failures"]) / seconds if watched else None,
        busy=since["computed"] / seconds if watched else None,
    )


def _counts(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return what Triton's statistics extension counts (`inference_stats`), times in seconds."""
    said = entry.get("inference_stats", {})

    def of(name: str, field: str) -> float:
        return float(said.get(name, {}).get(field, 0))

    return {
        "requests": of("success", "count"),
        "failures": of("fail", "count"),
        "seconds": of("success", "ns") / 1e9,
        "queued": of("queue", "ns") / 1e9,
        "computed": sum(of(name, "ns") for name in ("compute_input", "compute_infer", "compute_output")) / 1e9,
    }


def _traffic(facts: ModelFacts | None, config: Mapping[str, Any]) -> str:
    if facts is None:
        return ""
    if facts.versions:
        said = ", ".join(f"{share.weight} % {share.version}" for share in facts.versions)
    elif facts.alias is not None:
        value = (config.get("parameters") or {}).get(ALIAS_PARAMETER + facts.alias, {}).get("string_value")
        said = f"{facts.alias} → {value}" if str(value).isdecimal() else facts.alias
    else:
        said = "newest"
    mirror = facts.mirror
    return said if mirror is None else f"{said}; copies of {mirror.percent} % to {mirror.version}"


def _as_number(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else 0, version)
