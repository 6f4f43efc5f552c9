import json
from datetime import date, timedelta
from typing import Any

import pytest
import yaml

from policies.guardrails import ANNOTATION, Finding, Settings, Waiver, annotation, check
from policies.guardrails.checking import report, summary
from policies.guardrails.settings import FORMER_NAMES, settings_of
from stacks.images_lock import ImagesLock
from stacks.load import load, parse
from stacks.resolve import guardrail_settings
from stacks.stack import Definition
from stacks.validate import validate

from .stacks import DEFINITIONS, SMALL, TODAY, Objects, in_small, prod, settings

PODS, PROBES = "pods-fulfil-pod-security-restricted", "every-container-has-probes"
REASON = "The old store needs it."
WAIVER = {"name": "w", "rule": PODS, "owner": "platform-team", "reason": REASON, "until": "2026-11-21"}


def breaking(**changes: Any) -> Objects:
    objects = prod()
    in_small("hostNetwork", True)(objects)
    settings(objects, **changes)
    return objects


def weighed(objects: Objects, today: date = TODAY) -> list[tuple[str, str]]:
    return [(each.rule, each.severity) for each in check(objects, today)]


MANDATORY, ADVISORY, WAIVED = (PODS, "mandatory"), (PODS, "advisory"), (PODS, "waived")
IDLE = ("waivers-match-something", "advisory")
LATER = {**WAIVER, "name": "later", "until": "2027-01-01"}
WEIGHED: tuple[tuple[dict[str, Any], int, list[tuple[str, str]]], ...] = (
    # A severity of the environment overrides that of the guardrail.
    ({}, 0, [MANDATORY]),
    ({"severities": {PODS: "advisory"}}, 0, [ADVISORY]),
    ({"severities": {PROBES: "advisory"}}, 0, [MANDATORY]),
    # A waiver is valid up to and including its last day. After that its finding has the severity of what it covered.
    ({"waivers": [WAIVER]}, -400, [WAIVED]),
    ({"waivers": [WAIVER]}, 0, [WAIVED]),
    ({"waivers": [WAIVER]}, 1, [MANDATORY, ("waivers-have-not-expired", "mandatory")]),
    ({"waivers": [WAIVER], "severities": {PODS: "advisory"}}, 1, [ADVISORY, ("waivers-have-not-expired", "advisory")]),
    # It covers only its object, or all objects.
    ({"waivers": [{**WAIVER, "object": f"StatefulSet/{SMALL}"}]}, 0, [WAIVED]),
    ({"waivers": [{**WAIVER, "object": "StatefulSet/another"}]}, 0, [MANDATORY, IDLE]),
    ({"waivers": [{**WAIVER, "object": f"Deployment/{SMALL}"}]}, 0, [MANDATORY, IDLE]),
    ({"waivers": [{**WAIVER, "rule": PROBES}]}, 0, [MANDATORY, IDLE]),
    # Of two waivers the valid one counts, and the other is reported as expired.
    ({"waivers": [WAIVER, LATER]}, 1, [("waivers-have-not-expired", "mandatory"), WAIVED]),
)


@pytest.mark.parametrize(("changes", "days", "expected"), WEIGHED)
def test_a_breach_is_weighed_by_severities_waivers_and_their_days(
    changes: dict[str, Any], days: int, expected: list[tuple[str, str]]
) -> None:
    assert weighed(breaking(**changes), TODAY + timedelta(days)) == expected


@pytest.mark.parametrize(
    ("days", "rule", "what"),
    [
        (0, "waivers-match-something", "waiver w covers nothing"),
        (1, "waivers-have-not-expired", "waiver w expired on 2026-11-21"),
    ],
)
def test_an_unused_waiver_is_an_advisory_that_reports_whether_it_has_expired(days: int, rule: str, what: str) -> None:
    objects = prod()
    settings(objects, waivers=[WAIVER])
    (found,) = check(objects, TODAY + timedelta(days))
    assert (found.rule, found.severity) == (rule, "advisory")
    assert what in found.what


def test_a_waived_finding_names_owner_reason_and_last_day() -> None:
    (found,) = check(breaking(waivers=[WAIVER]), TODAY)
    assert "waived by platform-team until 2026-11-21 (w): The old store needs it." in str(found)


def test_a_guardrail_without_a_default_severity_applies_if_the_severity_is_set() -> None:
    objects = prod()
    in_small("containers/0/image", "triton:test")(objects)
    settings(objects, kind="local", severities=None)
    assert weighed(objects) == []
    settings(objects, severities={"images-are-pinned-by-digest": "mandatory"})
    assert weighed(objects) == [("images-are-pinned-by-digest", "mandatory")]


@pytest.mark.parametrize(
    ("kind", "severity"), [("production", "mandatory"), ("shared", "advisory"), ("local", "advisory")]
)
def test_severities_follow_the_kind_of_the_environment(kind: str, severity: str) -> None:
    objects = prod()
    in_small("containers/0/livenessProbe", {})(objects)
    settings(objects, kind=kind)
    assert weighed(objects) == [(PROBES, severity)]


def test_a_namespace_without_settings_has_the_severities_of_production() -> None:
    objects = breaking(kind="local", severities={PODS: "advisory"})
    del objects[0]["metadata"]["annotations"][ANNOTATION]
    assert weighed(objects) == [(PODS, "mandatory")]


def test_objects_of_other_namespaces_are_not_checked() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "a", "namespace": "theirs"}, "spec": {"hostNetwork": True}}
    assert check([pod], TODAY) == []
    assert weighed([*prod(), pod]) == []


UNREADABLE = (
    "", "[]", "{", "[" * 100_000, "{}", '{"kind": "prod"}',
    '{"kind": "production", "severity": {}}',
    '{"kind": "production", "severities": {"a": "of"}}',
    '{"kind": "production", "gpuSlices": "4"}',
    '{"kind": "production", "monthlyBudget": 4.5}',
    '{"kind": "production", "kind": "local"}',
    '{"kind": "local", "severities": {"no-such-rule": "advisory"}}',
    *(json.dumps({"kind": "production", "waivers": [{**WAIVER, **wrong}]})
      for wrong in ({"until": "soon"}, {"owner": " "}, {"untill": "2027-01-01"}, {"rule": "no-such-rule"})),
)  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_malformed_annotation_is_a_finding_and_exempts_nothing(text: str) -> None:
    objects = prod()
    in_small("containers/0/livenessProbe", {})(objects)
    objects[0]["metadata"]["annotations"][ANNOTATION] = text
    found = weighed(objects)
    assert ("guardrails-are-readable", "mandatory") in found
    assert (PROBES, "mandatory") in found


def test_settings_come_back_from_the_annotation_as_they_were() -> None:
    waivers = (
        Waiver("a", PODS, "me", "so", date(2027, 1, 31), "Deployment/x"),
        Waiver("b", PROBES, "you", "“because” – so", date(2030, 12, 1)),
    )
    shared = Settings("shared", {PODS: "advisory"}, waivers, 0, 9)
    for each in (Settings(), Settings("local"), shared):
        assert settings_of(annotation(each)) == each


# ---- the definition ----


def definition(section: dict[str, Any], of_dev: dict[str, Any] | None = None) -> Definition:
    tree = load(DEFINITIONS[0]).tree
    tree["guardrails"] = section
    del tree["environments"][1]["guardrails"]
    tree["environments"][0]["guardrails"] = of_dev or {}
    return validate(parse(yaml.safe_dump(tree, sort_keys=False), "f.yaml"), ImagesLock())


def test_each_environment_has_the_settings_of_the_definition() -> None:
    waiver = {**WAIVER, "object": "Deployment/x"}
    of_dev = {"severities": {PROBES: "mandatory"}, "waivers": [{"name": "w", "remove": True}], "gpuSlices": 9}
    found = definition({"severities": {PODS: "advisory"}, "waivers": [waiver], "gpuSlices": 40}, of_dev)
    settings = {stack.name: guardrail_settings(stack) for stack in found.stacks}
    kept = Waiver("w", PODS, "platform-team", "The old store needs it.", date(2026, 11, 21), "Deployment/x")
    assert settings["prod-east"] == Settings("production", {PODS: "advisory"}, (kept,), 40)
    assert settings["dev-lab"] == Settings("shared", {PODS: "advisory", PROBES: "mandatory"}, (), 9)


@pytest.mark.parametrize(("former", "now"), FORMER_NAMES.items())
def test_a_guardrail_keeps_its_former_names_in_severities_and_waivers(former: str, now: str) -> None:
    section = {"severities": {former: "mandatory", now: "advisory"}, "waivers": [{**WAIVER, "rule": former}]}
    settings = guardrail_settings(definition(section).stacks[0])
    assert settings.severities == {now: "mandatory"}
    assert [waiver.rule for waiver in settings.waivers] == [now]


# ---- reports ----


def made(rule: str = "r", severity: Any = "mandatory", name: str = "x", what: str = "it is wrong") -> Finding:
    return Finding(rule, severity, "Deployment", "ns", name, what, "Why.", "Do this.")


def test_a_report_has_equal_findings_once_and_reason_and_remedy_once_for_a_rule() -> None:
    found = {"east": [made(), made(name="y")], "west": [made()]}
    assert report(found) == (
        "east, west: Deployment/x in ns: it is wrong\n"
        "east: Deployment/y in ns: it is wrong\n"
        "    Why.\n    Do this.\n    Rule r, mandatory here."
    )
    assert summary(found) == "2 mandatory findings"


def test_a_report_begins_with_mandatory_findings_and_can_be_shortened() -> None:
    advisories = [made("a", "advisory", f"n{number}") for number in range(9)]
    text = report({"east": [*advisories, made()]}, 2)
    assert text.startswith("east: Deployment/x in ns: it is wrong\n")
    assert "… and 7 more like these" in text
    assert summary({"east": [*advisories, made()]}) == "1 mandatory finding, 9 advisories"


def test_reports_contain_no_control_characters() -> None:
    assert "\x1b" not in report({"e\x1b": [made(what="a \x1b[31m b")]})
    assert "\\u001b[31m" in report({"east": [made(what="a \x1b[31m b")]})
