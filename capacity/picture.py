"""The picture of a plan: the share of requests answered at once over what it costs, and the target as a line.

In the SVG each mark stands in a group: `answers-<kind>`, `recommended`, `busier`, `target`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.ticker import FixedLocator, FuncFormatter
from tidegate_eviction.simulate.report import figure

from .lines import Line, percent
from .simulations import Figures

FORMATS: Final = "svg", "png"
_TICKS: Final = (0.1, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
_NEARLY_ALL: Final = 0.99995
"""Where all of them are drawn, and what answers more: on this axis their own place is infinitely far away."""
_LABELS: Final = {"mixed": "mixed answers", "endpoints": "an endpoint for each model", "today": "today"}


def draw(folder: Path, title: str, axis: str, lines: Sequence[Line], target: float) -> list[Path]:
    """Write the picture in each format and return the files. `axis` says what the cost of a line is."""
    paths = [folder / f"plan.{kind}" for kind in FORMATS]
    for path in paths:
        with figure(path, title, loc="center left", bbox_to_anchor=(1, 0.5)) as (axes,):
            draw_on(axes, axis, lines, target)
    return paths


def draw_on(axes: Any, axis: str, lines: Sequence[Line], target: float) -> None:
    """Draw the lines of a plan on axes."""
    known = [(line, line.cost, line.figures) for line in lines]
    shown = [(line, cost, _share(figures)) for line, cost, figures in known if cost is not None and figures is not None]
    for kind in dict.fromkeys(line.kind for line, _, _ in shown):
        mine = sorted((cost, share) for line, cost, share in shown if line.kind == kind)
        style = "x" if kind == "mixed" else "D" if kind in _LABELS else "o-"
        axes.plot(*zip(*mine, strict=True), style, label=_LABELS.get(kind, kind), alpha=0.8, gid=f"answers-{kind}")
    label: str | None = "with 20 % more traffic"
    for line, cost, share in shown:
        if line.is_best:
            axes.plot([cost], [share], "*", markersize=18, color="tab:red", label="recommended", gid="recommended")
        if line.busier is not None:
            axes.plot([cost] * 2, [share, _share(line.busier)], "-", color="grey", alpha=0.5)
            busier = {"markerfacecolor": "none", "color": "grey", "label": label, "gid": "busier"}
            axes.plot([cost], [_share(line.busier)], "o", **busier)
            label = None
    said = f"target {percent(target)}"
    axes.axhline(min(target, _NEARLY_ALL), color="tab:green", linestyle="--", label=said, gid="target")
    axes.set_yscale("logit")
    axes.yaxis.set_major_locator(FixedLocator([*_TICKS, _NEARLY_ALL]))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda share, _: f"{share * 100:g} %" if share < _NEARLY_ALL else "all")
    )
    axes.set(xlabel=axis, ylabel="answered at once", xlim=(0, None))


def _share(figures: Figures) -> float:
    return min(max(figures.share_warm, 0.01), _NEARLY_ALL)
