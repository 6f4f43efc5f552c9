"""`python -m tests.proxy.attacks` runs every attack with one and with many attackers, and prints the effects. With
arguments, it runs only the attacks whose names contain one of them."""

import sys
import tempfile
from pathlib import Path

from .arena import ATTACKERS, HEAD, LIMIT, MEGABYTE, arena
from .attacking import ATTACKS

NUMBERS = (1, ATTACKERS)


def main() -> int:
    """Return 0 if no attack did harm."""
    words, harmed = sys.argv[1:], 0
    print(f"A proxy with {LIMIT // MEGABYTE} MB: it must use less than half, and no bystander's call may fail.")
    print(HEAD, flush=True)
    for over_tls in (False, True):
        names = [name for name in ATTACKS if ATTACKS[name].over_tls is over_tls]
        names = [name for name in names if not words or any(word in name for word in words)]
        if names:
            with tempfile.TemporaryDirectory() as folder, arena(Path(folder), over_tls) as place:
                for name in names:
                    for number in NUMBERS:
                        row = place.try_out(name, number)
                        harmed += not row.is_harmless
                        print(row, flush=True)
    return min(harmed, 1)


if __name__ == "__main__":
    sys.exit(main())
