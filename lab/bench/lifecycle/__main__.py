"""What a model's life costs: `python -m lab.bench.lifecycle`.

Publishing against cp, sha256sum and rsync; the memory of registering; what a model endpoint adds to a call, and what it
takes. Prints a table for people; the last line is JSON.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lab.bench import report
from lab.bench.report import Figures

from .endpoint import endpoint
from .entries import publishing, registering
from .goals import FULL, GOALS, QUICK, Scale

PARTS: Mapping[str, Callable[[Scale], Figures]] = {
    "publishing": publishing,
    "registering": registering,
    "endpoint": endpoint,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and last one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.lifecycle", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="only these parts (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="just enough to see that it runs: worth nothing as figures"
    )
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else FULL
    found = report.measure(GOALS, {name: partial(part, scale) for name, part in PARTS.items()}, options.only)
    report.print_all("The model's life", "medians of runs by turns; calls: the best run of each", GOALS, found)


if __name__ == "__main__":
    main()
