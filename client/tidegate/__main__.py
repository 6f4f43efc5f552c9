"""`tidegate`, and `python -m tidegate`."""

import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it without a traceback, even while it is still being loaded."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from .cli.app import main

        main()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
