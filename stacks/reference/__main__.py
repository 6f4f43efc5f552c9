"""`python -m stacks.reference` writes the generated pages and the schema; `--check` only says what is stale."""

import argparse
import sys

from . import files, stale, write


def main() -> int:
    """Write the files, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m stacks.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that are stale")
    if parser.parse_args().check:
        old = stale()
        for path in old:
            print(f"{path} is stale: run `make docs`", file=sys.stderr)
        return 1 if old else 0
    changed = write()
    for path in files():
        print(f"{path}: {'written' if path in changed else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
