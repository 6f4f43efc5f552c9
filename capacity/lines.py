"""A plan as people read it: one line for each answer, in a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from .simulations import Figures


@dataclass(frozen=True)
class Line:
    """An answer with its price."""

    name: str
    figures: Figures
    gpu_hours: float  # A month.
    money: float | None = None  # A month.
    is_best: bool = False


def table(lines: Sequence[Line], hours: float, money: str) -> Table:
    """Return the table of a trace of so many hours; `money` names the column, and there is none without a price."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("")
    headings = "at once", "waited", "refused", "worst", "cold wait p50", "p99", "loads/h", "lost", "GPU-hours", money
    for heading in filter(None, headings):
        made.add_column(heading, justify="right", no_wrap=True)
    for line in lines:
        cells = [*_of_callers(line.figures, hours), f"{line.gpu_hours:,.0f}"]
        if money:
            cells.append("–" if line.money is None else f"{line.money:,.0f}")
        made.add_row(Text(("▶ " if line.is_best else "  ") + line.name), *cells, style="bold" if line.is_best else None)
    return made


def _of_callers(found: Figures, hours: float) -> list[str]:
    return [
        percent(found.share_warm),
        percent(found.share_waited),
        percent(found.share_refused),
        _worst(found),
        f"{found.wait(50):.1f} s" if found.waits else "–",
        f"{found.wait(99):.1f} s" if found.waits else "–",
        f"{found.loads / hours:.1f}",
        f"{found.lost_seconds:,.0f} s",
    ]


def _worst(found: Figures) -> str:
    """Return which model has the largest share of its calls refused, and that share."""
    if found.worst_served is None:
        return "–"
    name, refused, calls = found.worst_served
    return f"{name} {percent(refused / calls)}"


def percent(share: float) -> str:
    """Return a share in per cent, with as many digits as tell it from all and from nothing."""
    for digits in (1, 2, 3):
        said = f"{share:.{digits}%}"
        if share in (0, 1) or float(said[:-1]) not in (0, 100):
            break
    return said.replace("%", " %")
