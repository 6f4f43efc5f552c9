"""Curves as PNG or SVG, by matplotlib."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from .compare import Row
from .errors import SimulationError
from .sweep import Point
from .trace import Trace

KINDS: Final = (".png", ".svg")
_STYLES: Final = {"policy": "-", "offline": "--", "libcachesim": ":"}


def check_plot(path: Path) -> None:
    """Refuse, before anything long is done, a name that no plot can be written to."""
    if path.suffix.lower() not in KINDS:
        raise SimulationError(f"--plot {path}: a plot is written as PNG or SVG. Let its name end in .png or .svg.")
    if not path.parent.is_dir():
        raise SimulationError(f"--plot {path}: there is no folder {path.parent}. Make it, or name another one.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SimulationError(
            "--plot needs matplotlib, which is not installed: pip install 'tidegate-eviction[simulate]'."
        ) from None


def plot_rows(path: Path, title: str, trace: Trace, rows: Sequence[Row]) -> None:
    """Draw what each spent on loading in the course of the trace. SimulationError if it cannot be written."""
    figure, axes = _figure(title)
    end = trace.seconds[-1] / 3600
    for row in rows:
        hours = [0.0, *(begin / 3600 for begin, _ in row.outcome.loads), end]
        sums = [0.0, *accumulate(seconds for _, seconds in row.outcome.loads)]
        busy = "" if row.kind == "libcachesim" else f", {row.outcome.busy:,} busy"
        label = f"{row.name}: {row.outcome.load_seconds:,.0f} s{busy}"
        axes.step(hours, [*sums, sums[-1]], _STYLES[row.kind], where="post", label=label)
    axes.set(xlabel="hours", ylabel="seconds spent loading so far")
    _save(figure, axes, path)


def plot_sweep(path: Path, title: str, points: Sequence[Point]) -> None:
    """Draw seconds of loading, and the share of requests that were refused, over the capacity."""
    figure, axes, below = _figure(title, 2)
    shares = [point.share * 100 for point in points]
    for place, row in enumerate(points[0].rows):
        outcomes = [point.rows[place].outcome for point in points]
        axes.plot(shares, [outcome.load_seconds for outcome in outcomes], "-o", label=row.name)
        below.plot(shares, [outcome.refused / outcome.requests * 100 for outcome in outcomes], "-o")
    axes.set(ylabel="seconds spent loading")
    axes.set_yscale("symlog", linthresh=10)
    below.set(xlabel="capacity, in per cent of all models' footprints", ylabel="% refused: busy, or too large")
    below.set_yscale("symlog", linthresh=0.01)
    _save(figure, axes, path)


def _figure(title: str, rows: int = 1) -> tuple[Any, ...]:
    """Return a figure, and its axes from above to below."""
    # Not pyplot: that one wants to know about displays.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4 + 1.5 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = list(figure.subplots(rows, 1, sharex=True, squeeze=False).flat)
    all_axes[0].set_title(title, fontsize=10)
    for axes in all_axes:
        axes.grid(alpha=0.3)
    return figure, *all_axes


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(fontsize=8)
    # SVG has no date and no random ids in it: the same simulation is the same file.
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "tidegate"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise SimulationError(f"--plot {path}: the plot cannot be written ({error.strerror}).") from None
