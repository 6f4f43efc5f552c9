"""`python -m lab.tools [NAME…]`: build or find the pinned tools, and print `name version path` for each."""

import sys
from collections.abc import Sequence

from lab.tools import files, programs
from lab.tools.programs import PROGRAMS
from rollout.tools.running import ToolError


def main(names: Sequence[str] = ()) -> int:
    """Build or find these tools, by default the usual ones. Return 1 if one fails."""
    usual = [name for name in [*PROGRAMS, *files.SOURCES] if name not in PROGRAMS or not PROGRAMS[name].by_name]
    try:
        for name in names or usual:
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
    sys.exit(main(sys.argv[1:]))
