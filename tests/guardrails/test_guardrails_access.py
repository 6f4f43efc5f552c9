"""Nobody in production is everybody."""

import json
from typing import Any

from .stacks import Case, Edit, at, both, broken, kept, settings

EVERYBODY = "access-rules-name-their-callers"
ALL = "access-rules-name-servers-or-models"
ROUTING = "ConfigMap/inference-proxy-routing"


def table(text: str) -> Edit:
    return at("ConfigMap", "inference-proxy-routing", "data/access.json", text)


def rule(**changes: Any) -> Edit:
    made = {"name": "r", "principals": [], "groups": ["team"], "actions": ["infer"], "servers": ["a"], "models": ["*"]}
    return table(json.dumps({"version": 1, "rules": [{**made, **changes}]}))


BROKEN = (
    Case(EVERYBODY, rule(groups=["*"]), ROUTING, 'access rule "r" is for all groups'),
    Case(EVERYBODY, rule(principals=["**"], groups=[]), ROUTING, "for all principals"),
    Case(EVERYBODY, rule(principals=["alice", "?*"], models=["fraud"]), ROUTING, "for all principals"),
    Case(EVERYBODY, rule(groups=["*"], actions=["inspect"]), ROUTING, "for all groups"),
    Case(ALL, rule(servers=["*"]), ROUTING, "every model of every server"),
    Case(ALL, rule(servers=["a", "*"], models=["b", "?*"]), ROUTING, "every model of every server"),
)
KEPT = (
    Case(EVERYBODY, rule(groups=["team-*"])),
    Case(EVERYBODY, rule(principals=["service-account-*"])),
    Case(EVERYBODY, both(rule(groups=["*"]), lambda objects: settings(objects, kind="shared"))),
    Case(EVERYBODY, table("no JSON: the proxy refuses it and keeps the last good one")),
    Case(ALL, rule(models=["*"], servers=["on*"])),
    Case(ALL, rule(models=["fraud-*"], servers=["*"])),
    Case(ALL, rule(models=["*"], servers=["*"], actions=["inspect"])),
)


@broken(*BROKEN)
def test_a_guardrail_is_broken_by(case: Case) -> None:
    case.broken()


@kept(*KEPT)
def test_a_guardrail_is_kept_by(case: Case) -> None:
    case.kept()
