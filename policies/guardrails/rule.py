"""The registry of rules: those of a definition (`stacks/rules`), and guardrails, which judge Kubernetes objects.

A decorator registers each rule with its title and severity. A function without the decorator is not a rule.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from .objects import Environment
from .settings import Kind, Severity

Subject = ParamSpec("Subject")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Rule(Generic[Subject, Found]):
    """A function that yields each place where the rule is broken. Its docstring, if any, is the reason for the rule."""

    function: Callable[Subject, Iterator[Found]]
    title: str  # A statement that is true if the rule is kept, without a full stop.

    def __call__(self, *args: Subject.args, **kwargs: Subject.kwargs) -> Iterator[Found]:
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The function's name, with dashes."""
        return self.function.__name__.replace("_", "-")

    @property
    def why(self) -> str:
        """The reason for the rule, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").split())


Registered = TypeVar("Registered", bound=Rule[..., Any])
_REGISTRY: dict[type, dict[str, Rule[..., Any]]] = {}


def register(subject: type, rule: Registered) -> Registered:
    """Add a rule about a class. Raises ValueError if another rule about the class has the same name."""
    if _REGISTRY.setdefault(subject, {}).setdefault(rule.name, rule) is not rule:
        raise ValueError(f"two rules about {subject.__name__} are named {rule.name}")
    return rule


def rules_about(subject: type, kind: type[Registered]) -> tuple[Registered, ...]:
    """Return the rules of a kind about a class, in the order of their registration."""
    return tuple(rule for rule in _REGISTRY.get(subject, {}).values() if isinstance(rule, kind))


@dataclass(frozen=True)
class Breach:
    """One place where a guardrail is broken. `what` never contains a secret."""

    object: Mapping[str, Any]
    what: str


@dataclass(frozen=True)
class Guardrail(Rule[[Environment], Breach]):
    """A rule about the objects of an environment. A severity of None means that it does not apply there."""

    do: str
    lower: str  # How to make it advisory, for mandatory findings.
    shared: Severity | None
    local: Severity | None
    production: Severity = "mandatory"

    def severity(self, kind: Kind) -> Severity | None:
        return {"production": self.production, "shared": self.shared, "local": self.local}[kind]


def guardrail(
    title: str, do: str, lower: str = "", shared: Severity | None = None, local: Severity | None = None
) -> Callable[[Callable[[Environment], Iterator[Breach]]], Guardrail]:
    """Register a function as a guardrail that is mandatory in production. `do` is the remedy."""
    return lambda function: register(Environment, Guardrail(function, title, do, lower, shared, local))
