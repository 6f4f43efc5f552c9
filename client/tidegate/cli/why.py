"""`tidegate why`: explains the state of one model."""

from typing import TYPE_CHECKING, Annotated, Final

from ..output import Json, exit_codes, moment, print_json, print_table, printable
from .calls import Environment, Plane, Proxy, end
from .completion import model_argument

if TYPE_CHECKING:
    from tidegate_contracts.whereabouts import Place, VisibleModel


_MEANING: Final = {
    "resident": "it is loaded and answers calls",
    "unreachable": "calls cannot reach its server",
    "unseen": "its contents are unknown",
    "cold": "it is not in memory, and the next call loads it",
    "queued": "it is requested, but not in memory yet",
    "loading": "its server is loading it",
    "draining": "it is unloaded when its last lease ends",
    "unloading": "it is being unloaded, and the next call loads it again",
    "freeing": "it is being unloaded, and the next call loads it again",
    "quarantined": "it failed too often: it is loaded again after it changes or the eviction policy restarts",
}
"""The meaning of a state for callers. For the other states, the proxy sends a reason."""
_AGAIN: Final = "its load failed, and the next call tries again"


def why(
    model: Annotated[str, model_argument(help="The model.")],
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    json: Json = False,
) -> None:
    """Explain one model at each replica: its state, what it waits for, who uses it, and what failed when."""
    with exit_codes():
        from ..status import overview, proxies

        found = overview(proxies(environment, plane, proxy), model=model)
        if json:
            print_json(found)
        for each in () if json else found:
            if rows := [_row(one, place) for one in each.models for place in one.places]:
                columns = "SERVER", "REPLICA", "STATE", "SINCE", "VERSIONS"
                print_table(
                    (*columns, "#WAITING", "HELD BY PROXY", "LAST USE", "EVICTABLE"), rows, f"{each.at}: {each.proxy}"
                )
            for line in dict.fromkeys(line for one in each.models for line in _reasons(one)):
                print(printable(line))
        end(found, json)


def _row(model: "VisibleModel", place: "Place") -> tuple[object, ...]:
    holders = "\n".join(f"{each.holder} ({each.in_flight} in flight)" for each in place.leases)
    last = "" if place.idle_seconds is None else f"{place.idle_seconds:.0f} s ago"
    evictable = "" if place.evictable_in is None else f"in {place.evictable_in:.0f} s" if place.evictable_in else "now"
    if evictable and any(each.in_flight for each in place.leases):
        evictable = "not while calls are in flight"
    return (
        f"{model.server}/{place.pool or model.pool}", place.replica, place.state, moment(place.since),
        ", ".join(map(str, place.versions)), place.waiters or "", holders, last, evictable,
    )  # fmt: skip


def _reasons(model: "VisibleModel") -> list[str]:
    reasons = [line for place in model.places for line in _reasons_at(place)]
    return reasons or ([f"{model.server}/{model.pool}: {model.why}"] if model.why else [])


def _reasons_at(place: "Place") -> list[str]:
    failures = [
        f"{place.replica}: {'' if each.version is None else f'version {each.version} '}failed"
        f" (known since {moment(each.since)}{', being loaded again' if each.retrying else ''}): {each.why}"
        for each in place.failures
    ]
    is_shown = any(each.why in place.why for each in place.failures)
    meaning = _AGAIN if place.failures and place.state == "cold" else _MEANING.get(place.state, "")
    words = [meaning, "" if is_shown else place.why.removeprefix(f"{place.replica} ")]
    lines = failures + [f"{place.replica}: {': '.join(filter(None, words))}"] * any(words)
    return lines + [f"{place.replica}: refused as busy in five minutes: {place.busy}"] * (place.busy > 0)
