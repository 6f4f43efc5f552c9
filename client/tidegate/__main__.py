"""`tidegate`, and `python -m tidegate`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, even while it is still being loaded."""
    try:
        from .cli.app import main

        main()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
