"""Entry point of `tidegate` and `python -m tidegate`."""

import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer


def run(load: "Callable[[], Typer]") -> None:
    """Run the command line that `load` imports. Ctrl-C and SIGTERM end it without a traceback, also during imports."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its child processes end with it
    # A stream that was closed (`>&-`) is None in Python. Output to it is discarded.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # for terminals that cannot show an arrow
    try:
        load()(prog_name="tidegate")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


def main() -> None:
    """Run the model commands."""

    def load() -> "Typer":
        from .cli.app import alone

        return alone()

    run(load)


if __name__ == "__main__":
    main()
