"""The quality of the eviction policy's decisions: `python -m lab.bench.eviction`.

It simulates the default and two simple policies over one trace (`--trace`, or a synthetic one) and over generated days.
It prints a table and a last line of JSON.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tidegate_eviction.simulate.report import about
from tidegate_eviction.simulate.trace import SimulationError, read_trace
from tidegate_eviction.simulate.zoo import Workload, generate

from lab.bench import report
from lab.bench.report import Figures, Goal, progress

from .offline import days, simulated

GOALS: Final = {
    "lost_vs_simple_25": Goal("seconds that callers lose, the default against simple rules, 25 %", "≤ 1"),
    "lost_vs_simple_40": Goal("the same, room for 40 %", "≤ 1"),
    "lost_vs_simple_60": Goal("the same, room for 60 %", "≤ 1"),
    "lost_vs_simple_days": Goal("the same on made-up days of five kinds, geometric mean", "≤ 1"),
    "lost_vs_simple_worst": Goal("the worst of their cells", "≤ 1.1"),
}
"""The keys of the last line, in order."""
ZOO = Workload(models=20, requests=20_000)


def main() -> None:
    """Measure, and print the table and one line of JSON."""
    parser = report.arguments("lab.bench.eviction", __doc__)
    parser.add_argument("--trace", type=Path, help="requests to simulate (default: a synthetic zoo)")
    parser.add_argument("--only", nargs="+", choices=["simulated", "days"], help="only these parts (default: both)")
    options = parser.parse_args()
    try:
        trace = read_trace(options.trace) if options.trace else None
    except SimulationError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    if trace is None:
        progress("No --trace: a synthetic trace is used.")
        trace = generate(ZOO)
    parts: dict[str, Callable[[], Figures]] = {"simulated": partial(simulated, trace), "days": days}
    found = report.measure(GOALS, {name: parts[name] for name in options.only or parts})
    report.print_all("The eviction policy", about(trace), GOALS, found)


if __name__ == "__main__":
    main()
