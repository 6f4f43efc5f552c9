"""The same program as a module, for the local cluster, whose Pulumi project has no program."""

import sys
from pathlib import Path

# In a checkout, `pulumi` starts this with only this directory on the path.
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "contracts")]

from rollout.program import run  # noqa: E402

run()
