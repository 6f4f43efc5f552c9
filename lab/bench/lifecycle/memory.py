"""The peak memory of a process: `python -m lab.bench.lifecycle.memory FILE MODULE …` runs a program, and tells.

FILE gets the bytes when the program ends. What the system counts for a child (`ru_maxrss`) is no measure: Linux begins
with what the parent had when it made the child.
"""

import re
import runpy
import sys
from pathlib import Path


def most_resident_bytes() -> int:
    """Return the most bytes that this process has had in RAM."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
    assert found is not None, "Linux tells it"
    return int(found[1]) * 1024


def main(file: str, module: str, *arguments: str) -> None:
    """Run a module as a program, and write down what it took."""
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(file).write_text(str(most_resident_bytes()), "ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
