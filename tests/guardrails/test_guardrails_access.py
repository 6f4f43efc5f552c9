"""Nobody in production is everybody."""

import json
from typing import Any

from .stacks import Edit, at, both, broken, findings, kept, prod, settings

EVERYBODY = "access-rules-name-their-callers"
ALL = "access-rules-name-servers-or-models"
ROUTING = "ConfigMap/inference-proxy-routing"


def table(text: str) -> Edit:
    return at("ConfigMap", "inference-proxy-routing", "data/access.json", text)


def rule(**changes: Any) -> Edit:
    made = {"name": "r", "principals": [], "groups": ["team"], "actions": ["infer"], "servers": ["a"], "models": ["*"]}
    return table(json.dumps({"version": 1, "rules": [{**made, **changes}]}))


BROKEN = (
    *broken(EVERYBODY, ROUTING, cases=[
        (rule(groups=["*"]), 'access rule "r" is for all groups'),
        (rule(principals=["**"], groups=[]), "for all principals"),
        (rule(principals=["alice", "?*"], models=["fraud"]), "for all principals"),
        (rule(groups=["*"], actions=["inspect"]), "for all groups"),
        (rule(principals=["*@*"], groups=[]), "for all principals"),
        (rule(groups=["[a-z]*"]), "for all groups"),
        (rule(groups=["[!]x]*-*"]), "for all groups"),
    ]),
    *broken(ALL, ROUTING, cases=[
        (rule(servers=["*"]), "every model of every server"),
        (rule(servers=["*"], actions=["inspect"]), "every model of every server"),
        (rule(servers=["[a-z0-9]*"], models=["*-*"]), "every model of every server"),
        (rule(servers=["a", "*"], models=["b", "?*"]), "every model of every server"),
    ]),
)  # fmt: skip
KEPT = (
    *kept(EVERYBODY, [
        rule(groups=["team-*"]),
        rule(principals=["service-account-*"]),
        rule(principals=["*@example.com", "[ab]lice"]),
        both(rule(groups=["*"]), lambda objects: settings(objects, kind="shared")),
        table("no JSON: the proxy refuses it and keeps the last good one"),
    ]),
    *kept(ALL, [
        rule(models=["*"], servers=["on*"]),
        rule(models=["fraud-*"], servers=["*"]),
        rule(models=["fraud"], servers=["*"]),
        both(rule(servers=["*"]), lambda objects: settings(objects, kind="shared")),
    ]),
)  # fmt: skip


def test_a_wildcard_in_production_stops_everybody_and_only_a_waiver_lets_it_through() -> None:
    """The issue says it in four words: no wildcard access in prod."""
    for name, edit in ((EVERYBODY, rule(groups=["*"])), (ALL, rule(servers=["*"]))):
        objects = prod()
        edit(objects)
        assert [(each.rule, each.severity) for each in findings(objects)] == [(name, "mandatory")]
        waiver = {"name": "w", "rule": name, "owner": "me", "reason": "so", "until": "2999-01-01"}
        settings(objects, waivers=[waiver])
        assert [each.severity for each in findings(objects)] == ["waived"]


def test_the_references_production_has_rules_of_its_own_for_each_group() -> None:
    (routing,) = (item for item in prod() if f"{item['kind']}/{item['metadata']['name']}" == ROUTING)
    rules = json.loads(routing["data"]["access.json"])["rules"]
    assert {each["name"]: (each["groups"], each["actions"], each["servers"]) for each in rules} == {
        "model-endpoints": (["model-endpoints"], ["infer", "inspect"], ["preload", "ondemand"]),
        "data-scientists-look": (["data-scientists"], ["inspect"], ["preload", "ondemand"]),
        "production-deployers": (["production-deployers"], ["infer", "inspect"], ["preload", "ondemand"]),
    }
