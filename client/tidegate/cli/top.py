"""`tidegate top`: shows the models in every slice as bars, and the state of each model."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from ..errors import ExitCode
from ..output import Json, console, exit_codes, print_json, printable, size
from .calls import Environment, Plane, Proxy, end

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text
    from tidegate_contracts.whereabouts import Place, SliceRoom, VisibleModel

    from ..status import PlaneOverview

_IN_MEMORY: Final = ("resident", "draining", "loading", "unloading", "freeing")
_UNKNOWN: Final = ("unseen", "unreachable")
_BAD: Final = ("unreachable", "quarantined", "failed")
_ORDER: Final = (*_BAD, "unseen", "queued", *_IN_MEMORY, "cold", "unknown")
_COLOURS: Final = dict.fromkeys(_BAD, "red") | {"resident": "green", "loading": "blue", "cold": "dim", "unknown": "dim"}
_FAILED: Final[dict[int, str]] = {ExitCode.REFUSED: "refused", ExitCode.BUSY: "busy"}
_PROBLEMS: Final[Sequence[tuple[str, str, "Callable[[VisibleModel], bool]"]]] = (
    ("unreachable", "red", lambda model: model.state == "unreachable"),
    ("failed to load", "red", lambda model: model.state in _BAD),
    ("refused as busy", "yellow", lambda model: _busy(model) > 0),
    ("had a failed load", "red", lambda model: any(place.failures for place in model.places)),
    ("unseen", "yellow", lambda model: model.state == "unseen"),
    ("", "", lambda _: True),
)
"""Kinds of problems with their colours, the worst first. The proxy's page has the same."""
_COLUMNS: Final = {
    "MODEL": 0, "SERVER": 80, "STATE": 0, "SINCE": 0, "SIZE": 120, "HELD BY": 100, "LAST USE": 120, "WHY": 0,
}  # fmt: skip
"""Columns, and the least width of a terminal that shows each."""
_NAMED: Final = 3  # models of each kind of problem in an environment's line
_ROWS: Final = 15  # models per environment without a terminal
_LONGEST_PAUSE: Final = 10.0  # seconds between updates if proxies respond slowly.
_ANSWER_SECONDS: Final = 3.0  # Timeout of a proxy in the live view.
_ONCE_SECONDS: Final = 6.0  # Timeout with --once: a proxy waits five seconds for its replicas
_SHADES: Final = "█▓▒"  # Neighbours differ even without colours.
_LEGEND: Final = "█ ▓ ▒ separate models, · is free. Green: loaded, blue: loading, yellow: leaving, red: leaked"


def top(
    environment: Environment = None,
    plane: Plane = None,
    proxy: Proxy = None,
    every: Annotated[float, Option(min=0.5, max=3600, help="Seconds between two updates.")] = 2.0,
    once: Annotated[bool, Option("--once", help="Print once and exit, as without a terminal.")] = False,
    json: Json = False,
) -> None:
    """Show what is in every slice, who uses it, what loads and what fails. Loads nothing."""
    with exit_codes():
        from rich.console import Group
        from rich.live import Live

        from ..status import overview, proxies

        known, to = proxies(environment, plane, proxy), console()
        if json or once or not sys.stdout.isatty():
            found = overview(known, _ONCE_SECONDS)
            if json:
                print_json(found)
            for part in () if json else _shown(found, to.width, _ROWS):
                to.print(part)
            end(found, json)
            return
        try:
            with Live(console=to, screen=True, auto_refresh=False) as live:
                while True:
                    began = time.monotonic()
                    found = overview(known, _ANSWER_SECONDS)
                    clock = _line((f"{datetime.now(UTC):%H:%M:%S} UTC", "dim"), live=True)
                    fit = _that_fit(found, to.width, to.height)
                    live.update(Group(clock, *_shown(found, to.width, fit, live=True)), refresh=True)
                    # Leaves most of a proxy's time for calls. A proxy that did not respond spent none.
                    took = 0.0 if any(each.error for each in found) else time.monotonic() - began
                    time.sleep(max(every, min(5 * took, _LONGEST_PAUSE)))
        except KeyboardInterrupt:
            return


def _that_fit(planes: "Sequence[PlaneOverview]", width: int, height: int) -> int:
    """Return how many models per environment fit on a live display, at least one."""
    above = sum(len(list(_above(each, width, live=True))) for each in planes)
    below = sum(3 if each.models else 1 for each in planes)  # the table's header, "and N more", an empty line
    clock_and_hints = 2 + any(each.slices for each in planes)
    return max(1, (height - above - below - clock_and_hints) // max(1, sum(bool(each.models) for each in planes)))


def _shown(
    planes: "Sequence[PlaneOverview]", width: int, rows: int, *, live: bool = False
) -> "Iterator[RenderableType]":
    """Yield the environments, failed ones first. If `live`, lines do not wrap and errors are included."""
    for each in sorted(planes, key=lambda each: not each.error):
        yield from _above(each, width, live=live)
        if each.models:
            yield _table(each.models, rows, width, wraps=not live)
        if (more := len(each.models) - rows) > 0:
            yield _line((f"and {more} more: run `tidegate status`", "dim"), live=live)
        yield _line(live=live)
    if any(each.slices for each in planes):
        yield _line((_LEGEND, "dim"), live=live)
    hint = "`tidegate why MODEL` explains a model's state. `tidegate history MODEL` lists its deployments."
    yield _line((hint, "dim"), live=live)


def _above(plane: "PlaneOverview", width: int, *, live: bool) -> "Iterator[RenderableType]":
    """Yield the lines above the table of an environment: its totals and its slices."""
    yield _line((plane.at, "bold"), *_sums(plane), live=live)
    for error in plane.error.splitlines() if live else ():
        yield _line((error, "red"), live=live)
    for room in plane.slices:
        at = f"{room.pod} ({room.replica})" if room.pod else room.replica
        used = f"  {size(room.capacity_bytes - room.free_bytes)} of {size(room.capacity_bytes)}"
        leaked = f", {size(room.leaked_bytes)} leaked" if room.leaked_bytes else ""
        parts = (used, ""), (leaked, "red"), (f"  {room.policy}", "dim")
        yield _line((f"{room.server}/{room.pool}", ""), (f"  {at}", "dim"), *parts, live=live)
        yield _bar(room, plane.models, width)
    for where, states in _preloaded(plane).items():
        yield _line((where, ""), (f"  {states}", "dim"), live=live)
    for where, why in _unknown(plane).items():
        yield _line((where, ""), (f"  {why}", "red"), live=live)


def _line(*parts: tuple[str, str], live: bool) -> "Text":
    """Return a line of texts, each with its style."""
    from rich.text import Text

    return Text.assemble(*((printable(text), style) for text, style in parts), no_wrap=live, overflow="ellipsis")


def _sums(plane: "PlaneOverview") -> "Iterator[tuple[str, str]]":
    """Yield the problems of an environment with their models, the worst first, and the states of its other models."""
    if plane.error:
        yield f"   {_FAILED.get(plane.exit_code, 'unreachable')}", "bold red"
    elif not plane.models:
        yield "   no models that you may inspect", ""
    for kind, (what, colour, _) in enumerate(_PROBLEMS):
        these = [model for model in plane.models if _problem(model) == kind]
        if these and what:
            names = [model.model for model in these[:_NAMED]] + ["…"] * (len(these) > _NAMED)
            yield f"   {len(these)} {what}: {', '.join(names)}", f"bold {colour}"
        elif these:
            yield f"   {_counted([model.state for model in these])}", "dim"


def _counted(states: list[str]) -> str:
    return ", ".join(
        f"{states.count(state)} {state}" for state in (*_ORDER, *sorted({*states} - {*_ORDER})) if state in states
    )


def _preloaded(plane: "PlaneOverview") -> dict[str, str]:
    """Return the preload pools, which have no slices, with the number of models in each state.

    The versions of a model may be in several pools.
    """
    nearest: dict[tuple[str, str], str] = {}
    for model in plane.models:
        places = [(place.pool or model.pool, place.state) for place in model.places] or [(model.pool, model.state)]
        for pool, state in places if model.loading == "preload" else ():
            at = f"{model.server}/{pool}", model.model
            nearest[at] = "resident" if state == "resident" else nearest.get(at, state)
    states: dict[str, list[str]] = {}
    for (pool, _), state in nearest.items():
        states.setdefault(pool, []).append(state)
    return {pool: f"preload  {_counted(of_it)}" for pool, of_it in states.items()}


def _unknown(plane: "PlaneOverview") -> dict[str, str]:
    """Return the replicas of on-demand pools whose contents are unknown, with the reason: they may not be empty."""
    return {
        f"{model.server}/{model.pool}  {place.replica}": place.why or "its contents are unknown"
        for model in plane.models
        for place in (model.places if model.loading == "on-demand" else ())
        if place.state in _UNKNOWN
    }


def _bar(room: "SliceRoom", models: "Iterable[VisibleModel]", width: int) -> "RenderableType":
    """Return a bar of this width, in which each model has the width of its share of the slice."""
    from rich.text import Text

    parts = []
    for model in models:
        for place in model.places if model.server == room.server else ():
            at = place.pool or model.pool, place.replica
            if at == (room.pool, room.replica) and place.state in _IN_MEMORY and place.footprint_bytes:
                parts.append((place.footprint_bytes, model.model, _COLOURS.get(place.state, "yellow")))
    parts.sort(reverse=True)
    used = room.resident_bytes + room.loading_bytes + room.freeing_bytes
    if (others := used - sum(part[0] for part in parts)) > 0:  # includes memory reserved for first loads
        parts.append((others, "others", "white"))
    if room.leaked_bytes:
        parts.append((room.leaked_bytes, "leaked", "red"))
    # Parts that ensembles share count in the size of each of them.
    scale = min(1.0, used / max(1, sum(part[0] for part in parts if part[1] != "leaked")))
    line, before = Text(no_wrap=True), 0.0
    for number, (count, name, colour) in enumerate(parts):
        after = before + count * (1.0 if name == "leaked" else scale)
        cells = round(width * after / room.capacity_bytes) - round(width * before / room.capacity_bytes)
        before = after
        text = f" {printable(name)[: cells - 2]} " if cells > 3 else ""
        fill = _SHADES[number % len(_SHADES)]
        line.append(text, style=f"black on {colour}")
        line.append(fill * (cells - len(text)), style=colour)
    line.append("·" * max(0, width - len(line)), style="dim")
    line.truncate(width)
    return line


def _table(models: "Sequence[VisibleModel]", rows: int, width: int, *, wraps: bool) -> "RenderableType":
    """Return a table of the first `rows` models, the worst problems first."""
    from rich.table import Table
    from rich.text import Text

    rank = {state: number for number, state in enumerate(_ORDER)}
    ordered = sorted(
        models, key=lambda each: (_problem(each), rank.get(each.state, len(rank)), -_requests(each), each.model)
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="dim")
    shown = [name for name, least in _COLUMNS.items() if width >= least]
    for name in shown:
        table.add_column(
            name,
            justify="right" if name == "SIZE" else "left",
            overflow="ellipsis",
            no_wrap=name != "WHY" or not wraps,
            max_width=width // 3 if name == "MODEL" else None,
            ratio=1 if name == "WHY" else None,  # It takes the rest of the width.
        )
    for model in ordered[:rows]:
        place = next((at for at in model.places if at.state == model.state), None)
        cells = dict(zip(_COLUMNS, map(printable, _row(model, place)), strict=True))
        styles = {"STATE": _COLOURS.get(model.state, "yellow"), "WHY": _PROBLEMS[_problem(model)][1]}
        table.add_row(*(Text(cells[name], styles.get(name, "")) for name in shown))
    return table


def _requests(model: "VisibleModel") -> int:
    return sum(lease.in_flight for place in model.places for lease in place.leases)


def _problem(model: "VisibleModel") -> int:
    return next(kind for kind, (_, _, has) in enumerate(_PROBLEMS) if has(model))


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
    lately = f"refused as busy in five minutes: {busy}" if (busy := _busy(model)) else ""
    known = "" if model.loading == "on-demand" and model.state in _UNKNOWN else model.why or failures
    why = "; ".join(filter(None, (known, f"{waiters} waiting" if waiters else "", lately)))
    return (
        model.model, about, model.state, since, "" if bytes_ is None else size(bytes_), held,
        "" if idle is None else f"{_ago(idle)} ago", why,
    )  # fmt: skip


def _ago(seconds: float) -> str:
    """Format an elapsed time briefly: 90 s, 5 min, 7 h, 3 d."""
    for most, unit, of in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if seconds < most:
            return f"{seconds / of:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
