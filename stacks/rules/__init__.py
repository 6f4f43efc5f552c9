"""The rules that look at more than one key. Importing a module registers its rules.

Rules that concern one item alone (weights that sum to 100, replicas or autoscaling) stand with that item's class in
`stacks.definition`.
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
    """Return what breaks some of these rules: about a header and its document, a stack, or a whole definition."""
    return [problem for rule in rules for problem in rule(*about)]
