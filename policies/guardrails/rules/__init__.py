"""The rules, in the order of docs/guardrails.md: each is a function of one of these modules."""

from collections.abc import Mapping

from ..rule import Rule
from . import access, credentials, datasets, exposure, gpu, money, network, openness, pod_security, triton, workloads

MODULES = (workloads, exposure, openness, network, pod_security, triton, datasets, gpu, money, credentials, access)
RULES = tuple(rule for module in MODULES for rule in vars(module).values() if isinstance(rule, Rule))
BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
