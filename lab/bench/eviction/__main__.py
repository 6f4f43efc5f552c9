"""How good the eviction policy decides, and what it costs: `python -m lab.bench.eviction`.

Simulated, over one trace (`--trace`, or a synthetic zoo) or made-up days: the default against two simple rules. Live,
with a real Triton, the policy next to it and a proxy in front: what warm and cold models cost.
Prints a table for people; the last line is JSON.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tidegate_eviction.simulate.report import about
from tidegate_eviction.simulate.trace import SimulationError, Trace, read_trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench import report
from lab.bench.report import Figures, Goal, say

from . import answers
from .answers import FULL, QUICK, Effort
from .offline import days, simulated

GOALS: Final[Mapping[str, Goal]] = {
    "warm_vs_preloaded": Goal("requests/s of a leased model, against the same one preloaded", "≥ 0.97", "1"),
    "cold_vs_triton": Goal("first answer of a cold model, against bare load and infer", "≤ 1.15", "1.05"),
    "lost_vs_simple_25": Goal("seconds that callers lose, the default against simple rules, 25 %", "≤ 1", "0.5"),
    "lost_vs_simple_40": Goal("the same, room for 40 %", "≤ 1", "0.5"),
    "lost_vs_simple_60": Goal("the same, room for 60 %", "≤ 1", "0.5"),
    "lost_vs_simple_days": Goal("the same on made-up days of five kinds, geometric mean", "≤ 1", "0.5"),
    "lost_vs_simple_worst": Goal("the worst of their cells", "", "≤ 1"),
}  # fmt: skip
"""The keys of the last line, in its order."""
ZOO = Workload(models=20, requests=20_000)
Part = Callable[[Trace, Effort], Figures]
PARTS: Mapping[str, Part] = {
    "simulated": lambda trace, _: simulated(trace),
    "days": lambda *_: days(),
    "warm": lambda _, effort: answers.against_preloaded(effort),
    "cold": lambda _, effort: answers.cold(effort),
}
"""What can be measured by itself, in this order; from `warm` on it is live, some two minutes together."""


def main() -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.eviction", description=__doc__.partition("\n")[0])
    parser.add_argument("--trace", type=Path, help="requests to simulate (default: a synthetic zoo)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="only these parts (default: all)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="of what is live, just enough to see that it runs: worth nothing as figures",
    )
    options = parser.parse_args()
    try:
        trace = read_trace(options.trace) if options.trace else None
    except SimulationError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if trace is None:
        say("No trace is given: a synthetic zoo takes its place.")
        trace = generate(ZOO)
    effort = QUICK if options.quick else FULL
    found = report.measure(GOALS, {name: partial(part, trace, effort) for name, part in PARTS.items()}, options.only)
    report.print_all("The eviction policy", about(trace), GOALS, found)


if __name__ == "__main__":
    main()
