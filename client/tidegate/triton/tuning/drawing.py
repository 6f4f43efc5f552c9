"""Throughput against latency as PNG or SVG, by matplotlib."""

from pathlib import Path
from typing import Any, Final

from ...errors import UsageError, install
from .plan import Measurement, Report

KINDS: Final = (".png", ".svg")


def check_plot(path: Path) -> None:
    """Refuse, before anything long is done, a name that no plot can be written to."""
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"--plot {path}: a plot is written as PNG or SVG", do="let its name end in .png or .svg")
    if not path.parent.is_dir():
        raise UsageError("there is no such folder", where=path.parent)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError("--plot needs matplotlib, which is not installed", do=install("plot")) from None


def plot(path: Path, report: Report) -> None:
    """Draw a line for each configuration and batch, with a point for each concurrency; raises UsageError."""
    import matplotlib

    # Not pyplot: that one wants to know about displays.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    latency = f"p{report.percentile}"
    for label, found in _lines(report).items():
        across = [each.latency(report.percentile) * 1000 for each in found]
        axes.plot(across, [each.inferences_per_second for each in found], "-o", label=label)
        for each, x in zip(found, across, strict=True):
            axes.annotate(
                str(each.setting.concurrency), (x, each.inferences_per_second), textcoords="offset points",
                xytext=(5, -9), fontsize=7,
            )  # fmt: skip
    if report.latency_limit_seconds is not None:
        axes.axvline(report.latency_limit_seconds * 1000, color="grey", linestyle="--", label="limit")
    if report.best is not None:
        point = (report.best.latency(report.percentile) * 1000, report.best.inferences_per_second)
        axes.plot(*point, "*", color="black", markersize=14, label="best")
    axes.set(xlabel=f"{latency} latency, ms (numbers: concurrency)", ylabel="inferences a second")
    axes.set_title(report.model, fontsize=10)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    # SVG has no date and no random ids in it: the same report is the same file.
    with matplotlib.rc_context({"svg.hashsalt": "tidegate"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(path, dpi=150, metadata=metadata)
        except OSError as error:
            raise UsageError(f"the plot cannot be written: {error.strerror}", where=path) from None


def _lines(report: Report) -> dict[str, list[Measurement]]:
    lines: dict[str, list[Measurement]] = {}
    for found in report.measurements:
        lines.setdefault(str(found.setting).rpartition(", ")[0], []).append(found)
    return lines
