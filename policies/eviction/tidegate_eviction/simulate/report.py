"""Simulations as tables and JSON."""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .engine import SimulationSetting
from .trace import QUANTILES, Outcome, Trace

COUNTED: Final = ("requests", "hits", "busy", "too_large", "evictions", "policy_failures")


def about(trace: Trace) -> str:
    """Return one line about a trace."""
    long = duration(trace.seconds[-1])
    requests = f"{len(trace):,} request{'s' * (len(trace) != 1)}"
    models = f"{len(trace.models):,} model{'s' * (len(trace.models) != 1)}"
    return f"{requests} to {models} ({decimal(trace.total_bytes)}) in {long}"


def console() -> Console:
    """Return a console for tables. If the output is no terminal, it has 140 columns, or the number in COLUMNS."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit() else 140
    return Console(width=width, markup=False, highlight=False, emoji=False)


def duration(seconds: float) -> str:
    """Return a duration as `24.0 h`, `12 min` or `81 s`."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def table(trace: Trace, setting: SimulationSetting, outcomes: Mapping[str, Outcome]) -> Table:
    """Return a row for each policy."""
    share = setting.capacity_bytes / trace.total_bytes
    size = f"{decimal(setting.capacity_bytes)}, {share:.0%} of all models"
    many = f"{setting.replicas} replicas of {size} each" if setting.replicas > 1 else f"capacity {size}"
    made = Table(title=f"{about(trace)}, {many}", title_justify="left", box=None, header_style="bold", pad_edge=False)
    made.add_column("")
    quantiles = (f"wait p{each}" for each in QUANTILES)
    for heading in ("hits", "cold loads", "loading", "busy", "too large", "lost", "evictions", *quantiles):
        made.add_column(heading, justify="right", no_wrap=True)
    for name, outcome in outcomes.items():
        waits = outcome.added_wait()
        made.add_row(
            Text(name),
            f"{outcome.hits:,}",
            f"{len(outcome.loads):,}",
            f"{outcome.load_seconds:,.0f} s",
            f"{outcome.busy:,}",
            f"{outcome.too_large:,}",
            f"{outcome.lost_seconds:,.0f} s",
            f"{outcome.evictions:,}",
            *(f"{waits[each]:.2f} s" for each in QUANTILES),
        )
    return made


def failures(outcomes: Mapping[str, Outcome]) -> list[str]:
    """Return a sentence for each policy that failed."""
    return [
        f"{name} failed at {outcome.policy_failures:,} choices, and the least recently used were evicted instead. "
        f"The first failure: {outcome.policy_failure}"
        for name, outcome in outcomes.items()
        if outcome.policy_failures
    ]


def as_json(trace: Trace, setting: SimulationSetting, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
    """Return the results as JSON. Sizes are bytes, times are seconds."""
    return {
        "models": len(trace.models),
        "models_bytes": trace.total_bytes,
        "capacity_bytes": setting.capacity_bytes,
        "replicas": setting.replicas,
        "rows": [
            {
                "name": name,
                **{counted: getattr(outcome, counted) for counted in COUNTED},
                "cold_loads": len(outcome.loads),
                "load_seconds": round(outcome.load_seconds, 3),
                "lost_seconds": round(outcome.lost_seconds, 3),
                **{f"added_wait_p{each}_seconds": round(wait, 6) for each, wait in outcome.added_wait().items()},
            }
            for name, outcome in outcomes.items()
        ],
    }
