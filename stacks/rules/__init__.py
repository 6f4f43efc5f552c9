"""The rules that concern several parts. Importing a module registers its rules.

Rules that concern one item (weights sum to 100, replicas or autoscaling) are in its class in `stacks.definition`.
"""

from collections.abc import Iterable
from typing import Any

from policies.guardrails.rule import rules_about

from ..definition import Header
from ..problems import Problem
from ..stack import Definition, Stack
from . import (  # noqa: F401
    capacity,
    effect,
    exposure,
    identity,
    names,
    openai,
    promotion,
    reach,
    references,
    safety,
    sizes,
    storage,
)
from .rule import DefinitionRule

HEADER_RULES = rules_about(Header, DefinitionRule)
STACK_RULES = rules_about(Stack, DefinitionRule)
DEFINITION_RULES = rules_about(Definition, DefinitionRule)


def violations(rules: Iterable[DefinitionRule[...]], *about: Any) -> list[Problem]:
    """Return the problems that some rules find in a header and its document, in a stack, or in a whole definition."""
    return [problem for rule in rules for problem in rule(*about)]
