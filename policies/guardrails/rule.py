"""What a guardrail is: a function over the objects of an environment whose name is the rule, and how severe it is.

The first line of its docstring is the sentence that people read; the rest says why it matters.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .objects import Environment
from .settings import Kind, Severity


@dataclass(frozen=True)
class Breach:
    """One place where a rule is broken; `what` never holds a secret."""

    object: Mapping[str, Any]
    what: str


Function = Callable[[Environment], Iterator[Breach]]


@dataclass(frozen=True)
class Rule:
    """A function, how severe a breach of it is by default, and what to do about one; None: it is not asked."""

    function: Function
    do: str
    shared: Severity | None
    local: Severity | None
    production: Severity = "mandatory"

    def __call__(self, environment: Environment) -> Iterator[Breach]:
        """Yield what breaks the rule."""
        return self.function(environment)

    @property
    def name(self) -> str:
        """The function's name, with dashes."""
        return self.function.__name__.replace("_", "-")

    @property
    def sentence(self) -> str:
        """The first line of the docstring: what the rule demands."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def why(self) -> str:
        """The rest of the docstring: why it is demanded."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n")[2].split())

    def severity(self, kind: Kind) -> Severity | None:
        """Return its severity in environments of this kind; None where it is not asked."""
        return {"production": self.production, "shared": self.shared, "local": self.local}[kind]


def guardrail(do: str, shared: Severity | None = None, local: Severity | None = None) -> Callable[[Function], Rule]:
    """Make a rule of a function: what to do about a breach, and its severity where it is not mandatory."""
    return lambda function: Rule(function, do, shared, local)
