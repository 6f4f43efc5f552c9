"""`python -m rollout`: what the Makefile calls."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, even while it is still being loaded."""
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
