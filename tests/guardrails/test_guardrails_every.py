"""Every guardrail is tested and explained. `rules/` has cases that break each, and cases that keep it narrowly."""

import copy
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from policies.guardrails import RULES
from policies.guardrails.settings import Kind, Severity
from tests.cases import GONE, each, read_cases
from tests.components.objects import named

from .stacks import Objects, everything, findings, place, prod, settings, shared_frontends, thing
from .test_guardrails_dangers import DANGERS

CASES = {
    rule: cases
    for file in sorted(Path(__file__).with_name("rules").glob("*.yaml"))
    for rule, cases in read_cases(file).items()
}


def edited(case: dict[str, Any]) -> Objects:
    """A sound environment with the edits of a case: changes, new and removed objects, and settings."""
    objects = {"": prod, "everything": everything, "dynamo": shared_frontends}[case.get("base", "")]()
    settings(objects, **case.get("settings", {}))
    changes = dict(case.get("set", {}))
    if "access" in case:
        changes["ConfigMap/inference-proxy-routing/data/access.json"] = json.dumps(case["access"])
    for path, value in changes.items():
        kind, name, rest = path.split("/", 2)
        place(named(objects, kind, name), rest, value if value is GONE else copy.deepcopy(value))
    for item in case.get("add", ()):
        more = {key: value for key, value in item.items() if key != "metadata"}
        added = thing(**copy.deepcopy(more))
        added["metadata"] |= {"namespace": objects[0]["metadata"]["name"], **item.get("metadata", {})}
        objects.append(added)
    return [item for item in objects if f"{item['kind']}/{item['metadata']['name']}" not in case.get("remove", ())]


@pytest.mark.parametrize(("rule", "case"), each("broken", CASES))
def test_a_guardrail_is_broken_by(rule: str, case: dict[str, Any]) -> None:
    """No other guardrail is broken. The finding names the object and the breach."""
    found = [one for one in findings(edited(case)) if one.severity != "waived"]
    text = "\n".join(map(str, found))
    assert {(one.rule, one.object) for one in found} == {(rule, case["about"])}, text
    assert any(case["says"] in one.what for one in found), text


@pytest.mark.parametrize(("_", "case"), each("kept", CASES))
def test_a_guardrail_is_kept_by(_: str, case: dict[str, Any]) -> None:
    assert findings(edited(case)) == []


def test_every_guardrail_has_an_example_that_breaks_it_and_one_that_comes_near() -> None:
    names = {rule.name for rule in RULES}
    assert names - {rule for rule, cases in CASES.items() if "broken" in cases} - DANGERS.keys() == set()
    assert names - {rule for rule, cases in CASES.items() if "kept" in cases} == set()


def test_every_guardrail_has_a_title_a_reason_and_a_remedy() -> None:
    for rule in RULES:
        assert rule.title
        assert rule.why.endswith("."), rule.name
        assert rule.do.endswith("."), rule.name
        assert not rule.lower or f"severities: {{{rule.name}: advisory}}" in rule.lower
        assert {rule.severity(kind) for kind in get_args(Kind)} <= {*get_args(Severity), None}


def test_no_finding_contains_a_secret() -> None:
    text = ""
    for case in CASES["secrets-are-never-inline"]["broken"]:
        text += "".join(map(str, findings(edited(case))))
    assert "secrets-are-never-inline" in text
    secrets = ("AKIA", "ghp_", "eyJ", "hunter2", "sesame", "Yg==")
    assert [secret for secret in secrets if secret in text] == []


def test_without_network_policies_servers_are_open_to_every_pod() -> None:
    objects = [item for item in prod() if item["kind"] != "NetworkPolicy"]
    found = findings(objects)
    assert {one.rule for one in found} == {"nothing-bypasses-the-proxy", "everything-is-refused-by-default"}
    open_ones = [one for one in found if one.rule == "nothing-bypasses-the-proxy"]
    assert len(open_ones) == sum(item["kind"] == "StatefulSet" for item in objects)
    assert all("no NetworkPolicy restricts" in one.what for one in open_ones)
