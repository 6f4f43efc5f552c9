"""`python -m lab.tools [NAME…]`: build or find the pinned tools and print `name version path`, one a line."""

import argparse
import sys
from collections.abc import Sequence

from lab.tools import files, programs
from lab.tools.programs import PROGRAMS
from rollout.tools.running import ToolError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code: 1 when a tool cannot be had, 2 for an unknown name."""
    names = [*PROGRAMS, *files.SOURCES]
    usual = [name for name in names if name not in PROGRAMS or not PROGRAMS[name].by_name]
    parser = argparse.ArgumentParser(
        prog="python -m lab.tools",
        description="Build or find the pinned tools, and print `name version path`, one a line.",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones: {', '.join(names)} (default: {', '.join(usual)})"
    )
    wanted = parser.parse_args(arguments).names or usual
    if unknown := [name for name in wanted if name not in names]:
        parser.error(f"unknown tool {unknown[0]!r}: there are {', '.join(names)}")
    try:
        for name in wanted:
            if name in PROGRAMS:
                found = programs.find(name)
                print(name, found.version, found.path, flush=True)
            else:
                print(name, files.version(name), files.module_folder(name), flush=True)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
