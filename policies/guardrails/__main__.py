"""The program that Pulumi starts for `pulumi preview --policy-pack policies/guardrails`."""

import sys
from pathlib import Path

# Pulumi starts this file with only its own directory on the path, so add those of the package and the contracts.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "contracts"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pulumi_policy import EnforcementLevel, PolicyPack

from policies.guardrails.pack import NAME, policies

PolicyPack(NAME, policies(), EnforcementLevel.ADVISORY)
