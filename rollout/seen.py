"""What a command finds, kept for the document that --json makes of it."""

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
    """What a command has found so far; a command that fails half way has found that much."""

    command: str
    file: str  # The definition, as it was given.
    definition: "Definition | None" = None  # Once it can be used.
    problems: Sequence[Problem] = ()  # Why it cannot be used.
    stacks: "Sequence[Stack]" = ()  # Those that the command is about.
    guardrails: "Mapping[str, Sequence[Finding]]" = field(default_factory=dict)
    lacks: "Mapping[str, Sequence[MissingPrerequisite]]" = field(default_factory=dict)
    changes: "Sequence[StackChange]" = ()
    against: str = ""
    verdict: str = ""
    notes: Sequence[str] = ()
    steps: "Sequence[Step]" = ()
