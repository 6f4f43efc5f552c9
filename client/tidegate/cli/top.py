"""`tidegate top`: what sits in every slice now, as bars, and what each model is doing."""

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from .calls import Environment, Plane, Proxy, end
from .output import Json, answering, console, print_json, printable, size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from tidegate_contracts.whereabouts import Place, SliceRoom, VisibleModel

    from ..whereabouts import PlaneOverview

_COLOURS: Final = {"resident": "green", "draining": "yellow", "loading": "blue"}
_IN_MEMORY: Final = ("resident", "draining", "loading", "unloading", "freeing")
_BAD: Final = ("quarantined", "failed", "unreachable", "unseen")
_ORDER: Final = (*_BAD, *_IN_MEMORY, "queued", "cold", "unknown")
_ROWS: Final = 15  # of models, where there is no terminal
_LONGEST_PAUSE: Final = 10.0  # seconds between two looks, for proxies that answer slowly
_ANSWER_SECONDS: Final = 3.0  # that a proxy may take, where others are looked at, too
_SHADES: Final = "█▓▒"  # Neighbours differ, without colours too.


def top(
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    every: Annotated[float, Option(min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Look once; so it does where there is no terminal.")] = False,
    rows: Annotated[
        int | None, Option(min=1, help="Models to show of each environment, those in memory first; as many as fit.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what sits in every slice, who holds it, what loads and what fails; until Ctrl-C. Loads nothing."""
    with answering():
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        from ..status import proxies
        from ..whereabouts import PlaneOverview, overview

        asked = proxies(environment, plane, proxy)
        if json:
            print_json(found := overview(asked))
            end(found, json)
            return
        if once or not sys.stdout.isatty():
            to = console()
            for part in _shown(found := overview(asked), to.width, rows or _ROWS):
                to.print(part)
            end(found, json)
            return
        to = console()
        try:
            with Live(console=to, screen=True, auto_refresh=False) as live:
                known: dict[str, tuple[float, PlaneOverview]] = {}
                while True:
                    began = time.monotonic()
                    found = [_or_before(each, known, began) for each in overview(asked, _ANSWER_SECONDS)]
                    fit = rows or _that_fit(found, to.height)
                    clock = Text(f"{datetime.now(UTC):%H:%M:%S} UTC", style="dim")
                    live.update(Group(clock, *_shown(found, to.width, fit, errors=True)), refresh=True)
                    took = time.monotonic() - began
                    time.sleep(max(every, min(5 * took, _LONGEST_PAUSE)))  # most of the proxy's time is for calls
        except KeyboardInterrupt:
            return


def _or_before(found: "PlaneOverview", known: "dict[str, tuple[float, PlaneOverview]]", now: float) -> "PlaneOverview":
    """Return what was found, or of a proxy that gives no answer what it said last, and how long ago that was."""
    if not found.error:
        known[found.proxy] = now, found
    elif found.proxy in known:
        then, before = known[found.proxy]
        why = f"{found.error.splitlines()[0]}\nWhat is below was so {_ago(now - then)} ago."
        return before.model_copy(update={"error": why})
    return found


def _that_fit(planes: "Sequence[PlaneOverview]", height: int) -> int:
    """Return how many models of each environment fit into so many lines; one at least."""
    fixed = 2 + sum(5 + 2 * len(each.slices) + len(each.error.splitlines()) for each in planes)
    return max(1, (height - fixed) // max(1, len(planes)))


def _shown(
    planes: "Sequence[PlaneOverview]", width: int, rows: int, *, errors: bool = False
) -> "Iterable[RenderableType]":
    """Yield what is seen; `errors`: why a proxy cannot be asked, too, where nobody else says so."""
    from rich.text import Text

    for each in planes:
        at = f"{each.environment} on {each.plane}" if each.plane else each.environment or each.proxy
        states = [model.state for model in each.models]
        sums = ", ".join(f"{states.count(state)} {state}" for state in _ORDER if state in states)
        for what, number in (
            ("failed to load", sum(_has_failed(model) for model in each.models)),
            ("told busy", sum(_busy(model) > 0 for model in each.models)),
        ):
            sums += f", {number} {what}" if number else ""
        sums = "cannot be asked" if each.error else sums or "no models that you may inspect"
        yield Text(printable(f"{at}   {sums}"), style="bold")
        if errors and each.error:
            yield Text(printable(each.error), style="red")
        for room in each.slices:
            yield Text(printable(_title(room)))
            yield _bar(room, each.models, width)
        for where, why in _untold(each).items():
            yield Text(printable(f"{where}  {why}"), style="red")
        if each.models:
            yield _table(each.models, rows, wraps=not errors)
        if (more := len(each.models) - rows) > 0:
            yield Text(f"and {more} more: `tidegate models`, or --rows", style="dim")
        yield Text("")
    yield Text(
        "`tidegate why MODEL` says what a model waits for, `tidegate history MODEL` who brought it.", style="dim"
    )


def _untold(plane: "PlaneOverview") -> dict[str, str]:
    """Return replicas of on-demand pools that do not say what sits in them, with why: none may be taken for empty."""
    return {
        f"{model.server}/{model.pool}  {place.replica}": place.why or "it does not say what sits in it"
        for model in plane.models
        for place in (model.places if model.loading == "on-demand" else ())
        if place.state in ("unseen", "unreachable")
    }


def _title(room: "SliceRoom") -> str:
    used = room.capacity_bytes - room.free_bytes
    leaked = f", {size(room.leaked_bytes)} leaked" if room.leaked_bytes else ""
    at = f"{room.pod} ({room.replica})" if room.pod else room.replica
    where = f"{room.server}/{room.pool}  {at}"
    return f"{where}  {size(used)} of {size(room.capacity_bytes)}{leaked}  {room.policy}"


def _bar(room: "SliceRoom", models: "Iterable[VisibleModel]", width: int) -> "RenderableType":
    """Return a line as wide as there is room for, with each model as wide as its share of the slice."""
    from rich.text import Text

    parts = []
    for model in models:
        for place in model.places if (model.server, model.pool) == (room.server, room.pool) else ():
            if place.replica == room.replica and place.state in _IN_MEMORY and place.footprint_bytes:
                parts.append((place.footprint_bytes, model.model, _COLOURS.get(place.state, "yellow")))
    parts.sort(reverse=True)
    used = room.resident_bytes + room.loading_bytes + room.freeing_bytes
    if (others := used - sum(part[0] for part in parts)) > 0:  # also what is kept for first loads
        parts.append((others, "others", "white"))
    if room.leaked_bytes:
        parts.append((room.leaked_bytes, "leaked", "red"))
    # Parts that ensembles share are in the size of each of them.
    scale = min(1.0, used / max(1, sum(part[0] for part in parts if part[1] != "leaked")))
    line, before = Text(no_wrap=True), 0.0
    for number, (count, name, colour) in enumerate(parts):
        after = before + count * (1.0 if name == "leaked" else scale)
        cells = round(width * after / room.capacity_bytes) - round(width * before / room.capacity_bytes)
        before = after
        name = printable(name)
        text = f" {name[: cells - 2]} " if cells > 3 else ""
        fill = _SHADES[number % len(_SHADES)]
        line.append(text, style=f"black on {colour}")
        line.append(fill * (cells - len(text)), style=colour)
    line.append("·" * max(0, width - len(line)), style="dim")
    line.truncate(width)
    return line


def _table(models: "Sequence[VisibleModel]", rows: int, *, wraps: bool) -> "RenderableType":
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("MODEL", "SERVER", "STATE", "SINCE", "SIZE", "HELD BY", "LAST USE", "WHY"):
        table.add_column(name, overflow="ellipsis", no_wrap=not wraps or name != "WHY")
    rank = {state: number for number, state in enumerate(_ORDER)}
    ordered = sorted(
        models,
        key=lambda each: (not _is_troubled(each), rank.get(each.state, len(rank)), -_requests(each), each.model),
    )
    for model in ordered[:rows]:
        nearest = next((place for place in model.places if place.state == model.state), None)
        is_bad = model.state in _BAD or _is_troubled(model)
        style = "red" if is_bad else "green" if model.state == "resident" else ""
        table.add_row(*map(printable, _row(model, nearest)), style=style)
    return table


def _requests(model: "VisibleModel") -> int:
    return sum(lease.in_flight for place in model.places for lease in place.leases)


def _has_failed(model: "VisibleModel") -> bool:
    return any(place.failures for place in model.places)


def _is_troubled(model: "VisibleModel") -> bool:
    return _has_failed(model) or _busy(model) > 0


def _busy(model: "VisibleModel") -> int:
    return sum(place.busy for place in model.places)


def _row(model: "VisibleModel", place: "Place | None") -> tuple[str, ...]:
    about = f"{model.server}/{model.pool}"
    since = "" if model.since is None else _ago((datetime.now(UTC) - model.since).total_seconds())
    holders = sum(len(each.leases) for each in model.places)
    held = f"{holders} ({_requests(model)} in flight)" if holders else ""
    idle = min((each.idle_seconds for each in model.places if each.idle_seconds is not None), default=None)
    waiters = sum(each.waiters for each in model.places)
    bytes_ = place.footprint_bytes if place is not None else None
    failures = "; ".join(dict.fromkeys(each.why for place in model.places for each in place.failures))
    lately = f"told busy in five minutes: {busy}" if (busy := _busy(model)) else ""
    why = "; ".join(filter(None, (model.why or failures, f"{waiters} waiting" if waiters else "", lately)))
    return (
        model.model, about, model.state, since, "" if bytes_ is None else size(bytes_), held,
        "" if idle is None else f"{_ago(idle)} ago", why,
    )  # fmt: skip


def _ago(seconds: float) -> str:
    """Return a time that has gone by in two or three words' room: 90 s, 5 min, 7 h, 3 d."""
    for most, unit, of in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < most:
            return f"{seconds / of:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
