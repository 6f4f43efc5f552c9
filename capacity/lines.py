"""The output of a plan: a table with one line for each answer."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from stacks.definition.prices import Price

from .answers import Row
from .simulations import Figures
from .slices import gpu_hours

_FEW_CALLS = 1000
_DAY_SECONDS = 24 * 3600


def table(rows: Sequence[Row], found: Row | None, hours: float, price: Price | None) -> Table:
    """Return the table for a trace of so many hours. The chosen answer is marked."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("")
    money = f"{price.currency} a month" if price else ""
    headings = "warm", "waited", "refused", "worst", "cold wait p50", "p99", "loads/h", "lost", "GPU-hours", money
    for heading in filter(None, headings):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        gpu_time = gpu_hours(row.answer.share)
        cells = [*_of_callers(row.figures, hours), f"{gpu_time:,.0f}"]
        if price:
            cells.append(f"{gpu_time * price.per_hour:,.0f}")
        is_found = row is found
        made.add_row(Text(f"{'▶' if is_found else ' '} {row.answer}"), *cells, style="bold" if is_found else None)
    return made


def too_few(calls: float, seconds: float | None = None) -> list[str]:
    """Return a warning if traffic is too little to decide about slices. A trace does not show its whole period."""
    enough = {"a day": seconds is None or seconds >= _DAY_SECONDS, f"{_FEW_CALLS:,} calls": calls >= _FEW_CALLS}
    least = " and ".join(what for what, is_enough in enough.items() if not is_enough)
    return [f"Too little traffic: record at least {least} before you decide."] if least else []


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
    if found.worst_served is None:
        return "–"
    name, refused, calls = found.worst_served
    return f"{name} {percent(refused / calls)}"


def percent(share: float) -> str:
    """Return a share in per cent, with enough digits to distinguish it from 0 and 100."""
    for digits in (1, 2, 3):
        text = f"{share:.{digits}%}"
        if share in (0, 1) or float(text[:-1]) not in (0, 100):
            break
    return text.replace("%", " %")
