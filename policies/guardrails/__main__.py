"""What Pulumi starts for `pulumi preview --policy-pack policies/guardrails`."""

import sys
from pathlib import Path

# Pulumi starts this file with nothing but its own folder on the path; the package and the contracts lie elsewhere.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "contracts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pulumi_policy import EnforcementLevel, PolicyPack

from policies.guardrails.pack import NAME, policies

PolicyPack(NAME, policies(), EnforcementLevel.ADVISORY)
