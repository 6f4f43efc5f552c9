"""The guardrails, in the order of docs/guardrails.md. Importing a module registers its rules."""

from collections.abc import Mapping

from ..objects import Environment
from ..rule import Guardrail, rules_about
from ..settings import FORMER_NAMES
from . import (  # noqa: F401
    access,
    credentials,
    datasets,
    encryption,
    exposure,
    network,
    pod_security,
    triton,
    workloads,
)

RULES = rules_about(Environment, Guardrail)
_NOW: Mapping[str, Guardrail] = {rule.name: rule for rule in RULES}
BY_NAME: Mapping[str, Guardrail] = {**_NOW, **{name: _NOW[now] for name, now in FORMER_NAMES.items()}}
"""The guardrails by their current names and by their former ones."""
