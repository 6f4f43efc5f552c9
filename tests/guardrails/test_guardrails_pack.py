import copy
import json
from typing import Any

import pytest
from pulumi_policy import Policy, ResourceValidationPolicy, StackValidationPolicy
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from policies.guardrails.checking import SETTINGS_RULES
from policies.guardrails.pack import ADVISORY, policies
from policies.guardrails.rules import RULES
from tests.cases import GONE
from tests.components.objects import named

from .stacks import SMALL, Object, Objects, at, findings, in_small, prod, settings


class Resource:
    """A resource in the engine's form: properties behind a proxy, with whole numbers as floats."""

    def __init__(self, item: Object, urn: str) -> None:
        self.resource_type = f"kubernetes:{item['apiVersion']}:{item['kind']}"
        self.urn = urn
        self.props = unknown_checking_proxy(json.loads(json.dumps(item), parse_int=float))


class Arguments:
    def __init__(self, resources: list[Resource]) -> None:
        self.resources = resources


Reports = dict[tuple[str, str], list[tuple[str, str | None]]]


def reports(objects: Objects, become: Objects | None = None) -> Reports:
    """Run the pack as the engine does: each resource as declared, then the stack with the resulting resources."""
    found: Reports = {}
    declared = [Resource(item, f"urn:{number}") for number, item in enumerate(objects)]
    after = [Resource(item, f"urn:{number}") for number, item in enumerate(become or objects)]
    pack = policies()

    def reporting(policy: Policy) -> Any:
        assert policy.enforcement_level is not None
        key = policy.name, policy.enforcement_level.value
        return lambda text, urn=None: found.setdefault(key, []).append((text, urn))

    for policy in pack:
        for each in declared if isinstance(policy, ResourceValidationPolicy) else ():
            assert policy.validate(each, reporting(policy)) is None  # type: ignore[attr-defined]
    for policy in pack:
        if isinstance(policy, StackValidationPolicy):
            policy.validate(Arguments(after), reporting(policy))  # type: ignore[arg-type]
    return found


def test_the_pack_reports_the_findings_of_check_with_the_namespaces_severities() -> None:
    objects = prod()
    in_small("hostNetwork", True)(objects)
    in_small("containers/0/livenessProbe", {})(objects)
    settings(objects, severities={"every-container-has-probes": "advisory"})
    place = f"urn:{objects.index(named(objects, 'StatefulSet', SMALL))}"
    found = reports(objects)
    assert set(found) == {
        ("pods-fulfil-pod-security-restricted", "mandatory"),
        (f"every-container-has-probes{ADVISORY}", "advisory"),
    }
    texts = [text for of_policy in found.values() for text, _ in of_policy]
    assert sorted(texts) == sorted(str(each).rpartition("\n")[0] for each in findings(objects))
    assert {urn for of_policy in found.values() for _, urn in of_policy} == {place}


def test_a_waived_finding_does_not_stop_the_update() -> None:
    objects = prod()
    in_small("hostNetwork", True)(objects)
    waiver = {"name": "w", "rule": "pods-fulfil-pod-security-restricted", "owner": "me", "reason": "so"}
    settings(objects, waivers=[{**waiver, "until": "2999-01-01"}])
    assert reports(objects) == {}
    settings(objects, waivers=[{**waiver, "until": "2000-01-01"}])
    assert {level for _, level in reports(objects)} == {"mandatory"}


def test_defaults_of_an_api_server_are_not_mistaken_for_declared_values() -> None:
    """On a cluster a stack validation sees the API server's defaults: `replicas: 1` although there is an autoscaler."""
    objects = prod()
    at("StatefulSet", SMALL, "spec/replicas", GONE)(objects)
    defaulted = copy.deepcopy(objects)
    for item in defaulted:
        if item["kind"] == "Deployment":
            item["spec"]["replicas"] = 1
    assert reports(objects, defaulted) == {}


def test_a_value_that_is_known_only_after_the_update_does_not_stop_it() -> None:
    objects = prod()
    in_small("containers/0/image", UNKNOWN_STRING_VALUE)(objects)
    settings(objects, severities=None)
    ((policy, level),) = reports(objects)
    assert (policy, level) == (f"images-are-pinned-by-digest{ADVISORY}", "advisory")
    (text, _), *_ = reports(objects)[policy, level]
    assert "known only after the update" in text
    waiver = {"name": "w", "rule": "images-are-pinned-by-digest", "owner": "me", "reason": "so", "until": "2999-01-01"}
    settings(objects, severities=None, waivers=[waiver])
    assert reports(objects) == {}


@pytest.mark.parametrize("text", ["(known only after the update)", "(not known before the update)"])
def test_a_written_text_about_unknown_values_lowers_no_finding(text: str) -> None:
    objects = prod()
    in_small("containers/0/image", f"registry.example.com/image:{text}")(objects)
    in_small("containers/0/command/0", UNKNOWN_STRING_VALUE)(objects)
    settings(objects, severities=None)
    assert ("images-are-pinned-by-digest", "mandatory") in reports(objects)


def test_every_guardrail_is_in_the_pack_once_for_each_level() -> None:
    pack = policies()
    names = [policy.name for policy in pack]
    rules = [*(rule.name for rule in RULES), *SETTINGS_RULES]
    assert sorted(names) == sorted(["what-is-declared", *rules, *(name + ADVISORY for name in rules)])
    assert all(policy.description for policy in pack)
