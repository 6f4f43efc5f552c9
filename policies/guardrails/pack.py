"""The guardrails as policies of a Pulumi policy pack.

Rules look at several objects, so they are asked once, of the whole stack. How severe one is stands on the Namespace and
not in the pack, but a policy's level is fixed: each rule is there twice, mandatory and advisory, and answers once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from .checking import SETTINGS_RULES, Finding, check
from .objects import name_of, namespace_of
from .rules import RULES

NAME = "tidegate-guardrails"
ADVISORY = ".advisory"  # Ends the name under which a rule only advises.
_UNKNOWN = ("(known only after the update)", "(not known before the update)")
"""Two texts for what is not known yet: a finding that differs between them depends on it."""

Object = dict[str, Any]


class Declared:
    """What a program declares, by URN.

    A stack validation is handed what resources have become: on a cluster that is full of the API server's defaults,
    a number of replicas among them. What was declared is seen when each resource comes by.
    """

    def __init__(self) -> None:
        """Begin with nothing; one run of the pack sees one run of a program."""
        self._objects: dict[str, tuple[Object, Object]] = {}
        self._asked: tuple[dict[str, tuple[Object, Object]], list[Finding]] = ({}, [])

    def remember(self, args: ResourceValidationArgs, _: ReportViolation) -> None:
        """Take a resource in; nothing is wrong with it yet."""
        if args.resource_type.startswith("kubernetes:"):
            self._objects[args.urn] = _both(args.props)

    def of_stack(self, args: StackValidationArgs) -> dict[str, tuple[Object, Object]]:
        """Return the Kubernetes objects of a stack by their URNs, as they were declared where that was seen.

        Each is there twice, with either text for what is not known yet.
        """
        return {
            each.urn: self._objects.get(each.urn) or _both(each.props)
            for each in args.resources
            if each.resource_type.startswith("kubernetes:") and "kind" in each.props
        }

    def findings(self, objects: dict[str, tuple[Object, Object]]) -> list[Finding]:
        """Return what is wrong with the objects of a stack; every policy asks, and one of them finds out.

        What depends on a value that is not known yet only advises: the next update judges it.
        """
        if self._asked[0] != objects:
            today = datetime.now(UTC).date()
            found = check([one for one, _ in objects.values()], today)
            if any(one != two for one, two in objects.values()):
                certain = {*check([two for _, two in objects.values()], today)}
                found = [
                    replace(each, severity="advisory") if each.severity == "mandatory" and each not in certain else each
                    for each in found
                ]
            self._asked = objects, found
        return self._asked[1]


def _both(props: Any) -> tuple[Object, Object]:
    return plain(props, _UNKNOWN[0]), plain(props, _UNKNOWN[1])


def plain(value: Any, unknown: str = _UNKNOWN[0]) -> Any:
    """Return a value as Kubernetes knows it: without what is missing, with whole numbers, without the provider's own.

    The text `unknown` replaces a value that is not known before the update.
    """
    if isinstance(value, Mapping):
        known = {key: _known(value, key, unknown) for key in value if not key.startswith("__")}
        return {key: plain(item, unknown) for key, item in known.items() if item is not None}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return [plain(_known(value, index, unknown), unknown) for index in range(len(value))]  # type: ignore[arg-type]


def _known(tree: Any, key: Any, unknown: str) -> Any:
    try:
        return tree[key]
    except UnknownValueError:
        return unknown


def policies(declared: Declared | None = None) -> list[Policy]:
    """Return the policies of the pack."""
    seen = declared or Declared()
    remembering = ResourceValidationPolicy(
        "what-is-declared",
        "Looks at every resource as the program declares it; finds nothing itself.",
        seen.remember,
        EnforcementLevel.ADVISORY,
    )
    sentences = {rule.name: f"{rule.title}." for rule in RULES} | dict(SETTINGS_RULES)
    return [
        remembering,
        *(
            StackValidationPolicy(name + ending, sentence, _asking(seen, name, severity), level)
            for name, sentence in sentences.items()
            for ending, severity, level in (
                ("", "mandatory", EnforcementLevel.MANDATORY),
                (ADVISORY, "advisory", EnforcementLevel.ADVISORY),
            )
        ),
    ]


def _asking(declared: Declared, name: str, severity: str) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        objects = declared.of_stack(args)
        places = {(str(one.get("kind")), namespace_of(one), name_of(one)): urn for urn, (one, _) in objects.items()}
        for each in declared.findings(objects):
            if each.rule == name and each.severity == severity:
                text, _, _ = str(each).rpartition("\n")  # Pulumi says itself which rule it is
                report(text, places.get((each.kind, each.namespace, each.name)))

    return validate
