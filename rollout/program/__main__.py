"""The same as a Pulumi project's `main`: for the local cluster, whose project has no program of its own."""

import sys
from pathlib import Path

# In a checkout, `pulumi` starts this with nothing but this folder on the path.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "contracts")]

from rollout.program import run  # noqa: E402

run()
