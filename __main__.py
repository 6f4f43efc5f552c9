"""The Pulumi program of this checkout: `rollout/program`, which says what can be configured."""

import sys
from pathlib import Path

# `pulumi` starts this file with nothing but its own folder on the path; the contracts are a package of their own.
sys.path.insert(0, str(Path(__file__).resolve().parent / "contracts"))

from rollout.program import run

run()
