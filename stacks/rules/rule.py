"""Decorators that register a rule about the header of a definition, about one stack, or about all stacks together."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from policies.guardrails.rule import Rule, Subject, register

from ..definition import Header
from ..load import Document
from ..problems import Problem, Severity
from ..stack import Definition, Stack


@dataclass(frozen=True)
class DefinitionRule(Rule[Subject, Problem]):
    """A rule of the definition, an error or a warning. A rule that is an error can also yield warnings."""

    severity: Severity

    def __call__(self, *args: Subject.args, **kwargs: Subject.kwargs) -> Iterator[Problem]:
        """Yield what breaks the rule, with its name."""
        for problem in self.function(*args, **kwargs):
            advisory = "advisory" in (self.severity, problem.severity)
            yield replace(problem, rule=self.name, severity="advisory" if advisory else "error")


def header_rule(
    title: str, severity: Severity = "error"
) -> Callable[[Callable[[Header, Document], Iterator[Problem]]], DefinitionRule[[Header, Document]]]:
    """Register a rule about environments and data planes."""
    return lambda function: register(Header, DefinitionRule(function, title, severity))


def stack_rule(
    title: str, severity: Severity = "error"
) -> Callable[[Callable[[Stack], Iterator[Problem]]], DefinitionRule[[Stack]]]:
    """Register a rule about one stack."""
    return lambda function: register(Stack, DefinitionRule(function, title, severity))


def definition_rule(
    title: str, severity: Severity = "error"
) -> Callable[[Callable[[Definition], Iterator[Problem]]], DefinitionRule[[Definition]]]:
    """Register a rule about all stacks together."""
    return lambda function: register(Definition, DefinitionRule(function, title, severity))
