"""Simulations as tables for people, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..words import bytes_text
from .compare import Row
from .outcome import QUANTILES
from .setting import Setting
from .sweep import Point
from .trace import Trace

NOTES = {
    "offline": "Belady's rules know every request to come; they are no optimum where models differ in size and cost.",
    "libcachesim": "libCacheSim's caches load in no time, evict what is in use, and tell nobody busy.",
}


def about(trace: Trace) -> str:
    """Return one line on a trace."""
    hours = trace.seconds[-1] / 3600
    return f"{len(trace):,} requests to {len(trace.models)} models ({bytes_text(trace.total_bytes)}) in {hours:.1f} h"


def table(trace: Trace, setting: Setting, rows: Sequence[Row]) -> Table:
    """Return what came of each, side by side."""
    share = setting.capacity_bytes / trace.total_bytes
    size = f"{bytes_text(setting.capacity_bytes)}, {share:.0%} of all models"
    many = f"{setting.replicas} replicas of {size} each" if setting.replicas > 1 else f"capacity {size}"
    made = Table(title=f"{about(trace)}; {many}", title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("")
    quantiles = (f"wait p{each}" for each in QUANTILES)
    bounded = ("× bound",) if any(row.bound for row in rows) else ()
    for heading in ("hits", "cold loads", "loading", "busy", "too large", "evictions", *quantiles, *bounded):
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
            f"{outcome.evictions:,}" if timed else "–",
            *(f"{waits[each]:.2f} s" if timed else "–" for each in QUANTILES),
        ]
        if bounded:
            cells.append(f"{row.times_bound:.2f}" if row.times_bound else "")
        made.add_row(Text(row.name), *cells)
    return made


def notes(rows: Sequence[Row], bounded: bool = False) -> list[str]:
    """Return what one must know to read the table; `bounded` is whether the bound was asked for."""
    said = [text for kind, text in NOTES.items() if any(row.kind == kind for row in rows)]
    bounds = [row.bound for row in rows if row.bound]
    if bounds:
        what = (
            "the optimum itself" if all(each.exact for each in bounds) else "of linear programming, below the optimum"
        )
        said.append(f"The bound is {what}: the same answers at the same moments with everything known beforehand.")
    elif bounded:
        said.append("There is no bound: for so many models, the trace is too long for linear programming.")
    return said


def curve(points: Sequence[Point]) -> Table:
    """Return what each policy does at each capacity."""
    names = list(dict.fromkeys(row.name for point in points for row in point.rows))
    made = Table(
        title="Seconds spent loading, and requests that were refused",
        title_justify="left",
        box=None,
        header_style="bold",
    )
    for heading in ("of all models", "capacity", *names):
        made.add_column(Text(heading), justify="right", no_wrap=True)
    for point in points:
        cells = (f"{row.outcome.load_seconds:,.0f} s  {row.outcome.refused:,}" for row in point.rows)
        made.add_row(f"{point.share:.0%}", bytes_text(point.capacity_bytes), *cells)
    return made


def as_json(trace: Trace, capacity_bytes: int, replicas: int, rows: Sequence[Row]) -> Mapping[str, Any]:
    """Return everything, for programs. Sizes are bytes, times are seconds."""
    return {
        "models": len(trace.models),
        "models_bytes": trace.total_bytes,
        "capacity_bytes": capacity_bytes,
        "replicas": replicas,
        "rows": [_row(row) for row in rows],
    }


def _row(row: Row) -> Mapping[str, Any]:
    least = row.bound and {"seconds": round(row.bound.seconds, 3), "exact": row.bound.exact}
    return {"name": row.name, "kind": row.kind, **row.outcome.figures(), "bound": least}
