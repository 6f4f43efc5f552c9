"""`tidegate` with all of its commands; `python -m cli` in a checkout."""

import gc
import os
import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# In a checkout, these have folders of their own; where Tidegate is installed, all packages lie side by side.
sys.path[:0] = [str(ROOT / part) for part in ("client", "contracts", "policies/eviction", "service")]


def collect_rarely() -> None:
    """Let the garbage collector run less often: the objects of a definition are many, and live to the end."""
    gc.set_threshold(100_000, 50, 1000)


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it without a traceback, even while it is still being loaded."""
    collect_rarely()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the processes that it started end with it
    # A stream that the shell closed (`>&-`) is None in Python; what is printed to it goes nowhere.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to fail
    try:
        from .app import app

        app(prog_name="tidegate")
    except KeyboardInterrupt:
        print("stopped; nothing was changed", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
