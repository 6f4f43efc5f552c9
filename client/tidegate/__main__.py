"""`tidegate`, and `python -m tidegate`."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


def run(load: "Callable[[], Typer]") -> None:
    """Run the command line that `load` imports; Ctrl-C and SIGTERM end it without a traceback, even meanwhile."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes that it started end with it
    # A stream that was closed (`>&-`) is None in Python; what is printed to it goes nowhere.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to fail
    try:
        load()(prog_name="tidegate")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Run the commands for models."""

    def load() -> "Typer":
        from .cli.app import alone

        return alone()

    run(load)


if __name__ == "__main__":
    main()
