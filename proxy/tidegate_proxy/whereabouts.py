"""Queries replicas for the states of models: where they are, what they wait for, who holds them, why they are absent.

Looking loads nothing. One request to a replica covers all its models, and all callers at about the same time share it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any

import msgspec
from tidegate_contracts.lease import IN_MEMORY, State
from tidegate_service.reasons import plain

from .pools import Pool, listed
from .problems import Problem
from .residency.client import Listing, PolicyError, Room
from .routes import Route
from .server_kind import ServerKind
from .upstream.breaker import FAILURES
from .upstream.load_watch import LoadWatch
from .upstream.replica import Replica

_NEAREST = (
    *(State.RESIDENT, State.LOADING, State.QUEUED, State.DRAINING, State.UNLOADING, State.FREEING, State.COLD),
    *("unseen", State.QUARANTINED, "failed", State.UNKNOWN, "unreachable"),
)
"""From nearest to use to farthest. Of several replicas, the nearest decides a model's state."""
_RANK: dict[str, int] = {state: number for number, state in enumerate(_NEAREST)}
_Json = dict[str, Any]
_Sees = Callable[[str, str], bool]  # Whether the caller can inspect a model of a server.
_Describe = Callable[[Route, Pool], _Json]
"""Returns a model's state at a replica of a pool, with the fields of `tidegate_contracts.whereabouts.Place`."""


@dataclass(frozen=True)
class _Replica:
    """The states of models at one replica, and its memory if it has a policy."""

    describe: _Describe
    room: Room | None = None


async def whereabouts(
    routes: Sequence[Route], sees: _Sees
) -> tuple[Callable[[Sequence[Route]], list[_Json]], list[_Json]]:
    """Query where the models of these routes are. Return a function that describes some of them, and their slices.
    There, only models that the caller `sees` are named (`VisibleModel`, `SliceRoom`)."""
    pools = {pool: route for route in routes for pool in route.pools}
    answers = await asyncio.gather(*(_query_each(pool, route.kind, sees) for pool, route in pools.items()))
    found = dict(zip(pools, answers, strict=True))
    slices = [
        {"server": route.server, "pool": pool.config.name, "replica": replica} | msgspec.to_builtins(at.room)
        for pool, route in pools.items()
        for replica, at in found[pool].items()
        if at.room is not None
    ]
    return lambda some: [_of_model(route, found) for route in some], slices


def _of_model(route: Route, found: dict[Pool, dict[str, _Replica]]) -> _Json:
    pool = route.pool
    by_pool = {
        there: [
            {"replica": replica, **({} if there is pool else {"pool": there.config.name})} | at.describe(route, there)
            for replica, at in found[there].items()
        ]
        for there in route.pools
    }
    places = [place for there in route.pools for place in by_pool[there]]
    asleep: _Json = {"state": State.COLD, "why": "its pool has no replica because it gets no calls: a call starts one"}
    nowhere = asleep if pool.sleeps else {"state": "unreachable", "why": plain(pool.why_not_ready())}
    nearest = min(places, key=lambda place: _RANK[place["state"]], default=nowhere)
    about = {"model": route.name, "server": route.server, "pool": pool.config.name, "loading": pool.config.loading}
    own: _Json = {"state": nearest["state"], "since": nearest.get("since"), "why": nearest.get("why", "")}
    own["versions"] = nearest.get("versions", ())
    if len(by_pool) > 1:  # each pool has other versions: one can be away while another one answers
        own["versions"] = sorted({version for place in places for version in place.get("versions", ())})
        whys = (_why_away(there, here) for there, here in by_pool.items())
        own["why"] = "; ".join(dict.fromkeys(filter(None, whys)))
    return about | own | {"places": places}


def _why_away(pool: Pool, places: list[_Json]) -> str:
    """Return why a pool has no version of a model in memory. Empty if it has."""
    if any(place["state"] == State.RESIDENT for place in places):
        return ""
    return str(places[0]["why"]) if places else plain(pool.why_not_ready())


async def _query_each(pool: Pool, kind: ServerKind, sees: _Sees) -> dict[str, _Replica]:
    replicas = list(pool.replicas)
    answers = await asyncio.gather(*(_query(pool, kind, replica, sees) for replica in replicas))
    return {replica.name: answer for replica, answer in zip(replicas, answers, strict=True)}


async def _query(pool: Pool, kind: ServerKind, replica: Replica, sees: _Sees) -> _Replica:
    if replica.breaker.failures >= FAILURES:
        why = f"{replica.name} gets no calls: {replica.breaker.why}"
        return _alike("unreachable", why, replica.breaker.open_seconds(monotonic()))
    if pool.leases is not None:
        try:
            listing = await pool.leases.listing(replica)
            return _Replica(_on_demand(listing, sees), listing.room)
        except PolicyError as error:
            why = f"the eviction policy of {replica.name} does not respond: {error}"
            return _alike("unseen", why, pool.leases.silent_seconds(replica))
    if not pool.reports_loads:
        try:
            names = await listed(pool, kind.config_path(""), replica, kind.serves)
            return _alike("resident", "") if names is None else _Replica(_served(names))
        except (Problem, ValueError) as error:
            why = error.detail if isinstance(error, Problem) else str(error)
            return _alike("unseen", f"{replica.name} does not list its models: {why}")
    if (watch := pool.watches.get(replica)) is None:
        return _alike("unseen", f"{replica.name} does not report its loaded models")
    await watch.look()
    if watch.seen_at is None:
        return _alike("unseen", f"{replica.name} does not list its loaded models: {watch.why}")
    return _Replica(_preloaded(watch, int(monotonic() - watch.seen_at)))


def _alike(state: str, why: str, seconds: float | None = None) -> _Replica:
    """Return the same state for every model at a replica, for so many seconds, if known."""
    state_of_all = {"state": state, "why": plain(why), "since": _time(None if seconds is None else time() - seconds)}
    return _Replica(lambda _, __: state_of_all)


def _served(names: Collection[str]) -> _Describe:
    """Return the states of models at a replica that serves these names."""

    def describe(route: Route, pool: Pool) -> _Json:
        wanted = {route.kind.version_name(route.name, version) or "": version for version in route.versions_in(pool)}
        if there := sorted(int(version) for name, version in wanted.items() if name in names):
            return {"state": State.RESIDENT, "versions": there}
        if not wanted and route.name in names:
            return {"state": State.RESIDENT}
        what = " or ".join(wanted) or route.name
        return {
            "state": State.UNKNOWN,
            "why": f"its engine does not serve {what}: it serves {', '.join(sorted(names)) or 'none'}",
        }

    return describe


def _on_demand(listing: Listing, sees: _Sees) -> _Describe:
    in_use = [each.model for each in listing.models.values() if each.state in IN_MEMORY and each.evictable_in != 0]

    def describe(route: Route, _: Pool) -> _Json:
        listed = listing.models.get(route.name)
        if listed is None:
            return {"state": State.UNKNOWN, "why": "the eviction policy does not know it"}
        state, why, seconds = listed.state, plain(listed.why), listed.state_seconds
        if listed.no_room_seconds is not None:  # it is cold most of the time, because each caller is soon refused
            state, seconds = State.QUEUED, listed.no_room_seconds
            seen = [name for name in in_use if sees(name, route.server)]
            others = ["others that you cannot see"] * (len(seen) < len(in_use))
            why += f": {', '.join(seen + others)}" if in_use else ""
        since = None if seconds is None else listing.at - seconds
        failed = [] if listed.failed_seconds is None else [listing.at - listed.failed_seconds]
        failures = [{"version": None, "why": plain(listed.failed_why), "since": _time(when)} for when in failed]
        return {
            "state": state, "since": _time(since), "why": why, "versions": listed.versions,
            "idleSeconds": listed.idle_seconds, "evictableIn": listed.evictable_in, "leases": listed.leases,
            "waiters": listed.waiters, "busy": listed.busy, "failures": failures,
            "footprintBytes": listed.footprint_bytes,
        }  # fmt: skip

    return describe


def _preloaded(watch: LoadWatch, seen_seconds: int) -> _Describe:
    failures: defaultdict[str, list[_Json]] = defaultdict(list)
    loading = {model for model, _ in watch.loading}
    for (model, version), failure in sorted(watch.failed.items()):
        retrying = (model, version) in watch.loading or (not version and model in loading)
        number = int(version) if version.isdecimal() else None
        entry = {"version": number, "why": failure.why, "since": _time(failure.since), "retrying": retrying}
        failures[model].append(entry)

    def describe(route: Route, _: Pool) -> _Json:
        model = route.name
        failed = failures.get(model, [])
        state: _Json
        if (versions := watch.loaded.get(model)) is not None:
            state = {"state": State.RESIDENT, "since": _time(watch.loaded_since[model]), "versions": versions}
        elif model in loading:
            state = {"state": State.LOADING}
        elif failed:
            why = "; ".join(dict.fromkeys(each["why"] for each in failed))
            state = {"state": "failed", "since": min(each["since"] for each in failed), "why": why}
        else:
            why = "no version of it is in memory. Deploy it, or wait a minute if you have just done so"
            state = {"state": State.UNKNOWN, "why": why}
        return state | {"failures": failed, "seenSeconds": seen_seconds}

    return describe


def _time(seconds: float | None) -> datetime | None:
    """Return a Unix time as a datetime, to the second."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)
