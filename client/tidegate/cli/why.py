"""`tidegate why`: one answer from proxy, policy and server about one model."""

from typing import TYPE_CHECKING, Annotated, Final

from .calls import Environment, Plane, Proxy, end
from .completion import model_argument
from .output import Json, exit_codes, moment, print_json, print_table, printable

if TYPE_CHECKING:
    from tidegate_contracts.whereabouts import Place, VisibleModel


_MEANING: Final = {
    "unreachable": "calls find no server there",
    "unseen": "what is loaded there is not told",
    "cold": "it is not in memory, and its next call loads it",
    "queued": "it is wanted, and not in memory yet",
    "loading": "its server is loading it",
    "draining": "it goes from memory when its last lease has ended",
    "unloading": "it goes from memory, and its next call loads it again",
    "freeing": "it goes from memory, and its next call loads it again",
    "quarantined": "it failed too often, and is not loaded until it changes or the server's eviction policy restarts",
}
"""What a state of a replica means to callers; the others say why themselves."""
_AGAIN: Final = "its load failed, and its next call tries it again"


def why(
    model: Annotated[str, model_argument(help="The model.")],
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    json: Json = False,
) -> None:
    """Say where a model is at each replica, what it waits for, who holds it, and what failed when."""
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
    is_told = any(each.why in place.why for each in place.failures)
    meaning = _AGAIN if place.failures and place.state == "cold" else _MEANING.get(place.state, "")
    words = [meaning, "" if is_told else place.why.removeprefix(f"{place.replica} ")]
    lines = failures + [f"{place.replica}: {': '.join(filter(None, words))}"] * any(words)
    return lines + [f"{place.replica}: in five minutes {place.busy} requests were refused as busy"] * (place.busy > 0)
