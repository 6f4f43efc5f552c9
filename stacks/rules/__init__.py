"""The rules that look at more than one key: each is a function whose name is the rule, and yields what breaks it.

Rules that concern one item alone (weights that sum to 100, replicas or autoscaling) stand with that item's class in
`stacks.definition`.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..definition import Header
from ..problems import Problem
from ..stack import Definition, Stack
from . import capacity, names, openai, policies, promotion, references, safety, sleep, storage

Rules = tuple[Callable[..., Iterator[Problem]], ...]
MODULES = (names, references, policies, promotion, capacity, storage, safety, openai, sleep)


def _rules_about(kind: type) -> Rules:
    """Return the public functions of these modules whose first argument is of a class: those are its rules."""
    return tuple(
        function
        for module in MODULES
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
        if next(iter(inspect.get_annotations(function, eval_str=True).values())) is kind
    )


HEADER_RULES = _rules_about(Header)
STACK_RULES = _rules_about(Stack)
DEFINITION_RULES = _rules_about(Definition)


def broken(rules: Rules, *about: Any) -> list[Problem]:
    """Return what breaks some of these rules: about a header and its document, a stack, or a whole definition."""
    return [problem for rule in rules for problem in rule(*about)]
