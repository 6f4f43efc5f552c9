"""What is served where, and how much it is used: asked of the proxies, which ask their Tritons. Nothing is loaded."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tidegate_contracts.environments import ModelFacts
from tidegate_contracts.triton import ALIAS_PARAMETER

from ..calling.proxy import ProxyClient
from ..calling.signature import signature_of
from ..errors import BusyError, NotFoundError, RefusedError, TidegateError
from .report import ModelStatus, PlaneStatus, VersionStatus
from .spots import Spot

_AT_ONCE: Final = 8
_ANSWER_SECONDS: Final = 15.0
_READY_SECONDS: Final = 3.0
"""For a model of which nothing is in memory where all of it should be."""
Entries = dict[str, dict[str, Any]]
"""Triton's statistics of one model, by version."""


def look(
    spots: Sequence[Spot], model: str | None = None, *, watch_seconds: float = 0, signatures: bool = False
) -> list[PlaneStatus]:
    """Return the status of each, asked at the same time; one that cannot be asked says why and hides no other.

    `watch_seconds`: count twice, so long apart, to tell rates. `signatures`: tell inputs and outputs too, of what is in
    memory. Raises NotFoundError where a model is named that none of those that answered has.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda spot: _plane(spot, model, watch_seconds, signatures), spots))
    if model is not None and not any(each.models or each.error for each in found):
        raise NotFoundError(f"there is no model {model!r}", do="`tidegate models` shows all that you may see")
    return found


def _plane(spot: Spot, model: str | None, watch_seconds: float, signatures: bool) -> PlaneStatus:
    about = {"environment": spot.environment, "plane": spot.plane, "proxy": spot.url}
    try:
        with spot.client(_ANSWER_SECONDS) as client:
            who = client.whoami()
            about["environment"] = spot.environment or who.environment
            looked = _Look(client, spot, about["environment"], model)
            before, began = looked.count(), time.monotonic()
            if watch_seconds:
                time.sleep(watch_seconds)
                now, seconds = looked.count(), time.monotonic() - began
            else:
                now, seconds = before, 0.0
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                models = threads.map(
                    lambda key: looked.model(key, before.get(key, {}), now.get(key, {}), seconds, signatures),
                    sorted(now, key=str),
                )
                hottest = sorted(models, key=lambda each: (-each.busy, -each.per_second, -each.requests, each.model))
            lacking = tuple(sorted(looked.unavailable))
            return PlaneStatus(**about, caller=who.principal, unavailable=lacking, models=tuple(hottest))
    except TidegateError as error:
        return PlaneStatus(**about, error=str(error), exit_code=error.exit_code)


Key = tuple[str | None, str]
"""Server, where it is known, and model."""


class _Look:
    """Asks one proxy."""

    def __init__(self, client: ProxyClient, spot: Spot, environment: str, model: str | None) -> None:
        self._client = client
        self._environment = environment
        self._plane = spot.plane
        self._only = model
        self.unavailable: set[str] = set()
        facts = spot.facts
        self._facts = None if facts is None else {(each.server, each.name): each for each in facts.models}
        self._pools = (
            {}
            if facts is None
            else {(server.name, pool.name): pool for server in facts.servers for pool in server.pools}
        )

    def count(self) -> dict[Key, Entries]:
        """Return the statistics of each model that there is, by version; empty for what is not in memory."""
        found: dict[Key, Entries] = {}
        if self._facts is None:
            self._add(found, None, lambda: self._client.statistics(self._only if self._only else None))
            return {key: entries for key, entries in found.items() if self._only in (None, key[1])}
        wanted = {key: facts for key, facts in self._facts.items() if self._only in (None, facts.name)}
        found = {key: {} for key in wanted}
        preloaded = {facts.server for facts in wanted.values() if self._loading(facts) != "on-demand"}
        for server in sorted(preloaded):
            self._add(found, server, lambda server=server: self._client.statistics(server=server))  # type: ignore[misc]
        # Of an on-demand pool, only the question for one model finds the replica that has it in memory.
        for key, facts in wanted.items():
            if self._loading(facts) == "on-demand":
                found[key] = {}
                self._add(found, facts.server, lambda facts=facts: self._client.statistics(  # type: ignore[misc]
                    facts.name, server=facts.server
                ))  # fmt: skip
        return {key: entries for key, entries in found.items() if key in wanted}

    def model(self, key: Key, before: Entries, now: Entries, seconds: float, signatures: bool) -> ModelStatus:
        """Return what there is to say of a model."""
        server, name = key
        facts = None if self._facts is None or server is None else self._facts[server, name]
        loading = None if facts is None else self._loading(facts)
        said: dict[str, Any] = {
            "environment": self._environment,
            "plane": self._plane,
            "model": name,
            "server": server,
            "pool": None if facts is None else facts.pool,
            "loading": loading,
            "resident": None if facts is not None and f"{server}/{facts.pool}" in self.unavailable else bool(now),
        }
        named = () if facts is None else tuple(str(share.version) for share in facts.versions)
        numbers = sorted({*now, *named}, key=_as_number)
        config: Mapping[str, Any] = {}
        absent = loading == "preload" and said["resident"] is False
        try:
            ready = self._client.ready(name, server=server, deadline=_READY_SECONDS if absent else None)
            if now or (loading == "preload" and ready):
                config = self._config(name, server) if signatures or (facts is not None and facts.alias) else {}
            versions = tuple(
                _version(number, self._ready(name, server, number, now), before.get(number), now.get(number), seconds)
                for number in numbers
            )
            said |= {"state": "ready" if ready else "absent" if absent else "not-ready", "versions": versions}
        except (RefusedError, NotFoundError):
            said |= {"state": "hidden"}
        except BusyError as error:  # the proxy waits for the alias of a model that nobody has brought
            said |= {"state": "absent"} if absent else {"state": "failing", "why": str(error)}
        except TidegateError as error:
            said |= {"state": "failing", "why": str(error)}
        if signatures and config:
            signature = signature_of(config)
            said["inputs"] = tuple(f"{each}{'?' if each.optional else ''}" for each in signature.inputs)
            said["outputs"] = tuple(map(str, signature.outputs))
            said["max_batch"] = signature.max_batch
        return ModelStatus(**said, traffic=_traffic(facts, config))

    # ---
    def _add(self, found: dict[Key, Entries], server: str | None, ask: Callable[[], Any]) -> None:
        try:
            statistics = ask()
        except NotFoundError:
            return  # nothing there that this caller may inspect
        self.unavailable |= set(statistics.unavailable)
        for entry in statistics.models:
            key = (server, str(entry["name"]))
            if self._facts is None or key in self._facts:
                found.setdefault(key, {})[str(entry.get("version", ""))] = entry

    def _loading(self, facts: ModelFacts) -> Literal["preload", "on-demand"] | None:
        pool = self._pools.get((facts.server, facts.pool))
        return None if pool is None else pool.loading

    def _config(self, name: str, server: str | None) -> Mapping[str, Any]:
        try:
            return self._client.config(name, server=server)
        except TidegateError:
            return {}  # a model that is not ready has none

    def _ready(self, name: str, server: str | None, number: str, now: Entries) -> bool | None:
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


def failures(planes: Iterable[PlaneStatus]) -> list[str]:
    """Return what kept some of them from being asked."""
    return [f"{each.environment or each.proxy} {each.plane}: {each.error}" for each in planes if each.error]
