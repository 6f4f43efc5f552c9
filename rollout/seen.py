"""The findings of a command, for the document that --json prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stacks.problems import Problem

if TYPE_CHECKING:
    from policies.guardrails import Finding
    from stacks.stack import Definition, Stack

    from .changes.stack_change import StackChange
    from .needs import MissingPrerequisite
    from .waves.plan import Step


@dataclass
class CommandReport:
    """The findings of a command so far. If the command fails, those before the failure."""

    command: str
    file: str  # The definition, as on the command line.
    definition: "Definition | None" = None  # Set once it is valid.
    problems: Sequence[Problem] = ()  # Why it is not valid.
    stacks: "Sequence[Stack]" = ()  # The stacks that the command works on.
    guardrails: "Mapping[str, Sequence[Finding]]" = field(default_factory=dict)
    lacks: "Mapping[str, Sequence[MissingPrerequisite]]" = field(default_factory=dict)
    changes: "Sequence[StackChange]" = ()
    against: str = ""
    verdict: str = ""
    notes: Sequence[str] = ()
    steps: "Sequence[Step]" = ()
