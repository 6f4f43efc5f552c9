"""The Pulumi program of this checkout. `rollout/program` lists its configuration."""

import sys
from pathlib import Path

# `pulumi` starts this file with only its own directory on the path, but `contracts` is a separate package.
sys.path.insert(0, str(Path(__file__).resolve().parent / "contracts"))

from rollout.program import run

run()
