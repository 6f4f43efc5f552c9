"""The guardrails as policies of a Pulumi policy pack.

Rules need several objects, so each is a policy of the whole stack. The severity of a rule is set on the Namespace, but
Pulumi fixes the level of a policy. So each rule is two policies, a mandatory and an advisory one, and one of them
reports a finding.
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
ADVISORY = ".advisory"  # The suffix of the name of an advisory policy.
_UNKNOWN = ("(known only after the update)", "(not known before the update)")
"""Two texts for an unknown value. A finding that differs between them depends on that value."""

Object = dict[str, Any]


class Declared:
    """The objects that one run of a program declares, by URN.

    A stack validation receives the resources with the defaults of the API server, such as a number of replicas. Only a
    resource validation receives them as declared, so this class remembers them from there.
    """

    def __init__(self) -> None:
        self._objects: dict[str, tuple[Object, Object]] = {}
        self._checked: tuple[dict[str, tuple[Object, Object]], list[Finding]] = ({}, [])

    def remember(self, args: ResourceValidationArgs, _: ReportViolation) -> None:
        """Remember a resource. This never reports a violation."""
        if args.resource_type.startswith("kubernetes:"):
            self._objects[args.urn] = _both(args.props)

    def of_stack(self, args: StackValidationArgs) -> dict[str, tuple[Object, Object]]:
        """Return the Kubernetes objects of a stack by their URNs, as declared if this run declared them. Each is a
        pair, with either text for unknown values."""
        return {
            each.urn: self._objects.get(each.urn) or _both(each.props)
            for each in args.resources
            if each.resource_type.startswith("kubernetes:") and "kind" in each.props
        }

    def findings(self, objects: dict[str, tuple[Object, Object]]) -> list[Finding]:
        """Return the findings about the objects of a stack. The first policy computes them for all policies. A finding
        that depends on an unknown value is advisory. The next update judges it."""
        if self._checked[0] != objects:
            today = datetime.now(UTC).date()
            found = check([one for one, _ in objects.values()], today)
            if any(one != two for one, two in objects.values()):
                certain = {*check([two for _, two in objects.values()], today)}
                found = [
                    replace(each, severity="advisory") if each.severity == "mandatory" and each not in certain else each
                    for each in found
                ]
            self._checked = objects, found
        return self._checked[1]


def _both(props: Any) -> tuple[Object, Object]:
    return plain(props, _UNKNOWN[0]), plain(props, _UNKNOWN[1])


def plain(value: Any, unknown: str = _UNKNOWN[0]) -> Any:
    """Return a value in the form of Kubernetes: without None, without the provider's own keys, with whole numbers. The
    text `unknown` replaces a value that is not known before the update."""
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
        "Remembers every resource as the program declares it. Never reports a violation.",
        seen.remember,
        EnforcementLevel.ADVISORY,
    )
    sentences = {rule.name: f"{rule.title}." for rule in RULES} | dict(SETTINGS_RULES)
    return [
        remembering,
        *(
            StackValidationPolicy(name + ending, sentence, _validation(seen, name, severity), level)
            for name, sentence in sentences.items()
            for ending, severity, level in (
                ("", "mandatory", EnforcementLevel.MANDATORY),
                (ADVISORY, "advisory", EnforcementLevel.ADVISORY),
            )
        ),
    ]


def _validation(declared: Declared, name: str, severity: str) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        objects = declared.of_stack(args)
        places = {(str(one.get("kind")), namespace_of(one), name_of(one)): urn for urn, (one, _) in objects.items()}
        for each in declared.findings(objects):
            if each.rule == name and each.severity == severity:
                text, _, _ = str(each).rpartition("\n")  # Pulumi prints the name of the rule itself.
                report(text, places.get((each.kind, each.namespace, each.name)))

    return validate
