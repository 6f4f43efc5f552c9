"""`python -m rollout`: what the Makefile calls."""

import gc
import os
import signal
import sys


def collect_rarely() -> None:
    """Look through all objects for garbage less often: those of a definition stay to the end, and are many."""
    gc.set_threshold(100_000, 50, 1000)


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it without a traceback, even while it is still being loaded."""
    collect_rarely()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else what it began would stay, and nobody be told
    # A stream that the shell closed (`>&-`) is None in Python: nothing is to be seen there.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to fail
    try:
        from .cli import app

        app(prog_name="python -m rollout")
    except KeyboardInterrupt:
        print("stopped; nothing was changed", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
