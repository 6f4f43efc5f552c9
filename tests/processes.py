"""Processes of this machine, found by what they were told."""

from pathlib import Path


def marked(text: str) -> set[int]:
    """Return the ids of the processes whose command or environment names a text; none that has ended."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue  # it has just ended
        if text.encode() in told:
            found.add(int(process.name))
    return found
