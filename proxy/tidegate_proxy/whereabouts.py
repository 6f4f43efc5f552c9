"""Where models are, what they wait for, who holds them, and why they are not loaded: as their replicas tell it.

Looking loads nothing. A replica is asked of all its models at once, and once for all who ask at about the same time.
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
"""From nearest to use to farthest: of several replicas, the nearest says what a model is."""
_RANK: dict[str, int] = {state: number for number, state in enumerate(_NEAREST)}
_Said = dict[str, Any]
_Sees = Callable[[str, str], bool]  # Whether the caller may inspect a model of a server.
_Tell = Callable[[Route, Pool], _Said]
"""Returns how a model is at a replica of a pool: what `tidegate_contracts.whereabouts.Place` has beside the replica."""


@dataclass(frozen=True)
class _Replica:
    """How models are at one replica, and of a policy's, its memory."""

    tell: _Tell
    room: Room | None = None


async def whereabouts(
    routes: Sequence[Route], sees: _Sees
) -> tuple[Callable[[Sequence[Route]], list[_Said]], list[_Said]]:
    """Ask where the models of these routes are; return what says it of some of them, and the slices that they share.

    Of those that take the room of others, the ones that the caller `sees` are named. Each is told as
    `tidegate_contracts.whereabouts.VisibleModel` and `SliceRoom` have it.
    """
    pools = {pool: route for route in routes for pool in route.pools}
    answers = await asyncio.gather(*(_ask_each(pool, route.kind, sees) for pool, route in pools.items()))
    asked = dict(zip(pools, answers, strict=True))
    slices = [
        {"server": route.server, "pool": pool.config.name, "replica": replica} | _json(at.room)
        for pool, route in pools.items()
        for replica, at in asked[pool].items()
        if at.room is not None
    ]
    return lambda some: [_of_model(route, asked) for route in some], slices


def _json(room: Room) -> _Said:
    said: _Said = msgspec.to_builtins(room)
    return said


def _of_model(route: Route, asked: dict[Pool, dict[str, _Replica]]) -> _Said:
    pool = route.pool
    by_pool = {
        there: [
            {"replica": replica, **({} if there is pool else {"pool": there.config.name})} | at.tell(route, there)
            for replica, at in asked[there].items()
        ]
        for there in route.pools
    }
    places = [place for there in route.pools for place in by_pool[there]]
    asleep: _Said = {"state": State.COLD, "why": "its pool has no replica while nobody calls: a call brings one"}
    nowhere = asleep if pool.sleeps else {"state": "unreachable", "why": plain(pool.why_not_ready())}
    nearest = min(places, key=lambda place: _RANK[place["state"]], default=nowhere)
    about = {"model": route.name, "server": route.server, "pool": pool.config.name, "loading": pool.config.loading}
    own: _Said = {"state": nearest["state"], "since": nearest.get("since"), "why": nearest.get("why", "")}
    own["versions"] = nearest.get("versions", ())
    if len(by_pool) > 1:  # and each has versions of its own: one may be away while another one answers
        own["versions"] = sorted({version for place in places for version in place.get("versions", ())})
        whys = (_why_away(there, here) for there, here in by_pool.items())
        own["why"] = "; ".join(dict.fromkeys(filter(None, whys)))
    return about | own | {"places": places}


def _why_away(pool: Pool, places: list[_Said]) -> str:
    """Return why a pool has nothing of a model that answers, or nothing."""
    if any(place["state"] == State.RESIDENT for place in places):
        return ""
    return str(places[0]["why"]) if places else plain(pool.why_not_ready())


async def _ask_each(pool: Pool, kind: ServerKind, sees: _Sees) -> dict[str, _Replica]:
    replicas = list(pool.replicas)
    answers = await asyncio.gather(*(_ask(pool, kind, replica, sees) for replica in replicas))
    return {replica.name: answer for replica, answer in zip(replicas, answers, strict=True)}


async def _ask(pool: Pool, kind: ServerKind, replica: Replica, sees: _Sees) -> _Replica:
    if replica.breaker.failures >= FAILURES:
        why = f"{replica.name} gets no calls: {replica.breaker.why}"
        return _alike("unreachable", why, replica.breaker.open_seconds(monotonic()))
    if pool.leases is not None:
        try:
            listing = await pool.leases.listing(replica)
            return _Replica(_on_demand(listing, sees), listing.room)
        except PolicyError as error:
            why = f"the eviction policy of {replica.name} gives no answer: {error}"
            return _alike("unseen", why, pool.leases.silent_seconds(replica))
    if not pool.tells_loads:
        try:
            names = await listed(pool, kind.config_path(""), replica, kind.serves)
            return _alike("resident", "") if names is None else _Replica(_served(names))
        except (Problem, ValueError) as error:
            why = error.detail if isinstance(error, Problem) else str(error)
            return _alike("unseen", f"which models {replica.name} serves cannot be seen: {why}")
    if (watch := pool.watches.get(replica)) is None:
        return _alike("unseen", f"{replica.name} does not tell which models it has loaded")
    await watch.look()
    if watch.seen_at is None:
        return _alike("unseen", f"what {replica.name} has loaded cannot be seen: {watch.why}")
    return _Replica(_preloaded(watch, int(monotonic() - watch.seen_at)))


def _alike(state: str, why: str, seconds: float | None = None) -> _Replica:
    """Return how every model is at a replica, for so many seconds, where that is known."""
    said = {"state": state, "why": plain(why), "since": _time(None if seconds is None else time() - seconds)}
    return _Replica(lambda _, __: said)


def _served(names: Collection[str]) -> _Tell:
    """Return how models are at a replica that serves these names."""

    def tell(route: Route, pool: Pool) -> _Said:
        wanted = {route.kind.version_name(route.name, version) or "": version for version in route.versions_in(pool)}
        if there := sorted(int(version) for name, version in wanted.items() if name in names):
            return {"state": State.RESIDENT, "versions": there}
        if not wanted and route.name in names:
            return {"state": State.RESIDENT}
        what = " or ".join(wanted) or route.name
        return {
            "state": State.UNKNOWN,
            "why": f"its engine serves no {what}: it serves {', '.join(sorted(names)) or 'none'}",
        }

    return tell


def _on_demand(listing: Listing, sees: _Sees) -> _Tell:
    in_use = [each.model for each in listing.models.values() if each.state in IN_MEMORY and each.evictable_in != 0]

    def tell(route: Route, _: Pool) -> _Said:
        listed = listing.models.get(route.name)
        if listed is None:
            return {"state": State.UNKNOWN, "why": "the eviction policy does not know it"}
        state, why, seconds = listed.state, plain(listed.why), listed.state_seconds
        if listed.no_room_seconds is not None:  # It is cold but for moments: each caller is soon refused.
            state, seconds = State.QUEUED, listed.no_room_seconds
            seen = [name for name in in_use if sees(name, route.server)]
            others = ["others that are not for you to see"] * (len(seen) < len(in_use))
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

    return tell


def _preloaded(watch: LoadWatch, seen_seconds: int) -> _Tell:
    failures: defaultdict[str, list[_Said]] = defaultdict(list)
    loading = {model for model, _ in watch.loading}
    for (model, version), failure in sorted(watch.failed.items()):
        retrying = (model, version) in watch.loading or (not version and model in loading)
        number = int(version) if version.isdecimal() else None
        told = {"version": number, "why": failure.why, "since": _time(failure.since), "retrying": retrying}
        failures[model].append(told)

    def tell(route: Route, _: Pool) -> _Said:
        model = route.name
        failed = failures.get(model, [])
        said: _Said
        if (versions := watch.loaded.get(model)) is not None:
            said = {"state": State.RESIDENT, "since": _time(watch.loaded_since[model]), "versions": versions}
        elif model in loading:
            said = {"state": State.LOADING}
        elif failed:
            why = "; ".join(dict.fromkeys(each["why"] for each in failed))
            said = {"state": "failed", "since": min(each["since"] for each in failed), "why": why}
        else:
            why = "no version of it is in memory: deploy it, or wait a minute if you have just done so"
            said = {"state": State.UNKNOWN, "why": why}
        return said | {"failures": failed, "seenSeconds": seen_seconds}

    return tell


def _time(seconds: float | None) -> datetime | None:
    """Return seconds since the epoch as a time, to the second."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC)
