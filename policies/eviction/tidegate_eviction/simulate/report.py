"""Simulations as tables, JSON and plots."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from ..units import bytes_text
from .compare import ComparisonRow, SweepPoint
from .engine import SimulationSetting
from .trace import QUANTILES, Outcome, SimulationError, Trace

NOTES = {
    "offline": "Belady's rules know every request to come; they are no optimum where models differ in size and cost.",
    "libcachesim": "libCacheSim's caches load in no time, evict what is in use, and refuse no request.",
}

_APART = 15  # Models that a picture of a slice tells apart.
_PARTS = 288  # Of a day, five minutes each.
COUNTED: Final = ("requests", "hits", "busy", "too_large", "evictions", "policy_failures")


def about(trace: Trace) -> str:
    """Return one line on a trace."""
    hours = trace.seconds[-1] / 3600
    return f"{len(trace):,} requests to {len(trace.models)} models ({bytes_text(trace.total_bytes)}) in {hours:.1f} h"


def table(trace: Trace, setting: SimulationSetting, rows: Sequence[ComparisonRow]) -> Table:
    """Return what came of each, side by side."""
    share = setting.capacity_bytes / trace.total_bytes
    size = f"{bytes_text(setting.capacity_bytes)}, {share:.0%} of all models"
    many = f"{setting.replicas} replicas of {size} each" if setting.replicas > 1 else f"capacity {size}"
    made = Table(title=f"{about(trace)}; {many}", title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("")
    quantiles = (f"wait p{each}" for each in QUANTILES)
    bounded = ("× bound",) if any(row.bound for row in rows) else ()
    for heading in ("hits", "cold loads", "loading", "busy", "too large", "lost", "evictions", *quantiles, *bounded):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        outcome, waits = row.outcome, row.outcome.added_wait()
        timed = row.kind != "libcachesim"
        cells = [
            f"{outcome.hits:,}",
            f"{len(outcome.loads):,}",
            f"{outcome.load_seconds:,.0f} s",
            f"{outcome.busy:,}" if timed else "–",
            f"{outcome.too_large:,}",
            f"{outcome.lost_seconds:,.0f} s" if timed else "–",
            f"{outcome.evictions:,}" if timed else "–",
            *(f"{waits[each]:.2f} s" if timed else "–" for each in QUANTILES),
        ]
        if bounded:
            cells.append(f"{row.times_bound:.2f}" if row.times_bound else "")
        made.add_row(Text(row.name), *cells)
    return made


def notes(rows: Sequence[ComparisonRow], bounded: bool = False) -> list[str]:
    """Return notes that explain the table; `bounded` is whether the bound was asked for."""
    said = [text for kind, text in NOTES.items() if any(row.kind == kind for row in rows)]
    said += [
        f"{row.name} failed at {row.outcome.policy_failures:,} choices, where the least recently used went instead; "
        f"first: {row.outcome.policy_failure}"
        for row in rows
        if row.outcome.policy_failures
    ]
    bounds = [row.bound for row in rows if row.bound]
    if bounds:
        is_optimum = all(each.exact for each in bounds)
        what = "the optimum itself" if is_optimum else "of linear programming, below the optimum"
        said.append(f"The bound is {what}: the same answers at the same moments with everything known beforehand.")
    elif bounded:
        said.append("There is no bound: for so many models, the trace is too long for linear programming.")
    return said


def curve(points: Sequence[SweepPoint]) -> Table:
    """Return what each policy does at each capacity."""
    names = list(dict.fromkeys(row.name for point in points for row in point.rows))
    title = "Seconds spent loading, and requests that were refused"
    made = Table(title=title, title_justify="left", box=None, header_style="bold")
    for heading in ("of all models", "capacity", *names):
        made.add_column(Text(heading), justify="right", no_wrap=True)
    for point in points:
        cells = (f"{row.outcome.load_seconds:,.0f} s  {row.outcome.refused:,}" for row in point.rows)
        made.add_row(f"{point.share:.0%}", bytes_text(point.capacity_bytes), *cells)
    return made


def as_json(trace: Trace, capacity_bytes: int, replicas: int, rows: Sequence[ComparisonRow]) -> Mapping[str, Any]:
    """Return everything, for programs. Sizes are bytes, times are seconds."""
    return {
        "models": len(trace.models),
        "models_bytes": trace.total_bytes,
        "capacity_bytes": capacity_bytes,
        "replicas": replicas,
        "rows": [_figures(row) for row in rows],
    }


def _figures(row: ComparisonRow) -> dict[str, Any]:
    outcome = row.outcome
    counts = {name: getattr(outcome, name) for name in COUNTED}
    waits = {f"added_wait_p{each}_seconds": round(wait, 6) for each, wait in outcome.added_wait().items()}
    loads = {"cold_loads": len(outcome.loads), "load_seconds": round(outcome.load_seconds, 3)}
    loads["lost_seconds"] = round(outcome.lost_seconds, 3)
    bound = row.bound and {"seconds": round(row.bound.seconds, 3), "exact": row.bound.exact}
    return {"name": row.name, "kind": row.kind, **counts, **loads, **waits, "bound": bound}


KINDS: Final = (".png", ".svg")
_STYLES: Final = {"policy": "-", "offline": "--", "libcachesim": ":"}


def check_plot(path: Path) -> None:
    """Raise SimulationError, before anything long is done, for a name that no plot can be written to."""
    if path.suffix.lower() not in KINDS:
        raise SimulationError(f"--plot {path}: a plot is written as PNG or SVG. Let its name end in .png or .svg.")
    if not path.parent.is_dir():
        raise SimulationError(f"--plot {path}: there is no folder {path.parent}. Make it, or name another one.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SimulationError(
            "--plot needs matplotlib, which is missing: pip install './policies/eviction[simulate]' in a checkout."
        ) from None


def plot_rows(path: Path, title: str, trace: Trace, rows: Sequence[ComparisonRow]) -> None:
    """Draw the seconds of loading of each row in the course of the trace. SimulationError if it cannot be written."""
    with figure(path, title) as (axes,):
        end = trace.seconds[-1] / 3600
        for row in rows:
            hours = [0.0, *(begin / 3600 for begin, _ in row.outcome.loads), end]
            sums = [0.0, *accumulate(seconds for _, seconds in row.outcome.loads)]
            busy = "" if row.kind == "libcachesim" else f", {row.outcome.busy:,} busy"
            label = f"{row.name}: {row.outcome.load_seconds:,.0f} s{busy}"
            axes.step(hours, [*sums, sums[-1]], _STYLES[row.kind], where="post", label=label)
        axes.set(xlabel="hours", ylabel="seconds spent loading so far")


def plot_slice(path: Path, title: str, trace: Trace, capacity_bytes: int, outcome: Outcome) -> None:
    """Draw what sits in memory in the course of the trace, on average over each of `_PARTS` of it: the models with most
    of it apart, the others together; and below how long was loaded. SimulationError if it cannot be written."""
    end = max(trace.seconds[-1], outcome.memory[-1][0] if outcome.memory else 0.0)
    part = (end or 1.0) / _PARTS
    held: dict[int, list[float]] = {which: [0.0] * _PARTS for _, which, _ in outcome.memory}
    for at, which, size in outcome.memory:  # from then on there is so much more, or less
        first = min(_PARTS - 1, int(at / part))
        held[which][first] += size * (first + 1 - at / part)
        for later in range(first + 1, _PARTS):
            held[which][later] += size
    shown = sorted(held, key=lambda which: -sum(held[which]))
    layers = [held[which] for which in shown[:_APART]]
    layers.append([sum(held[which][at] for which in shown[_APART:]) for at in range(_PARTS)])
    names = [*(trace.models[which].name for which in shown[:_APART]), "others"]
    hours = [(at + 0.5) * part / 3600 for at in range(_PARTS)]
    with figure(path, title, 2, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.03)) as (axes, below):
        import matplotlib

        layers = [[height / (1 << 30) for height in layer] for layer in layers]
        axes.stackplot(
            hours, layers, labels=names, linewidth=0, colors=matplotlib.colormaps["tab20"](range(_APART + 1))
        )
        axes.axhline(capacity_bytes / (1 << 30), color="black", linestyle="--", linewidth=1)
        axes.set(ylabel="GiB in memory", ylim=(0, 1.05 * capacity_bytes / (1 << 30)))
        loading = {
            "weights": [seconds for _, seconds in outcome.loads],
            "range": (0, _PARTS * part / 3600),
            "color": "#1f77b4",
        }
        below.hist([at / 3600 for at, _ in outcome.loads], bins=96, **loading)
        below.set(xlabel="hours", ylabel="seconds spent loading")


def plot_sweep(path: Path, title: str, points: Sequence[SweepPoint]) -> None:
    """Draw seconds of loading, and the share of requests that were refused, over the capacity."""
    with figure(path, title, 2) as (axes, below):
        shares = [point.share * 100 for point in points]
        for place, row in enumerate(points[0].rows):
            outcomes = [point.rows[place].outcome for point in points]
            axes.plot(shares, [outcome.load_seconds for outcome in outcomes], "-o", label=row.name)
            below.plot(shares, [outcome.refused / outcome.requests * 100 for outcome in outcomes], "-o")
        axes.set(ylabel="seconds spent loading")
        axes.set_yscale("symlog", linthresh=10)
        below.set(xlabel="capacity, in per cent of all models' footprints", ylabel="% refused: busy, or too large")
        below.set_yscale("symlog", linthresh=0.01)


@contextmanager
def figure(path: Path, title: str, rows: int = 1, **legend: Any) -> Iterator[list[Any]]:
    """Yield a figure's axes from above to below, and write it then; `legend` is where matplotlib puts that."""
    import matplotlib
    from matplotlib.figure import Figure  # not pyplot: that one wants to know about displays

    figure = Figure(figsize=(9, 4 + 1.5 * rows), layout="constrained")
    all_axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False).flat)
    all_axes[0].set_title(title, fontsize=10)
    for axes in all_axes:
        axes.grid(alpha=0.3)
    yield all_axes
    all_axes[0].legend(fontsize=8, **legend)
    # SVG has no date and no random ids in it: the same simulation is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "tidegate"}):
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else {})
        except OSError as error:
            raise SimulationError(f"--plot {path}: the plot cannot be written ({error.strerror}).") from None
