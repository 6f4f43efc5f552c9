import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.changes.page import page
from rollout.changes.permissions import Grant, PermissionChange, permission_change
from rollout.changes.sections import Line, sections
from rollout.changes.stack_change import stack_change, verdict
from rollout.render import render
from tests.cases import read_cases
from tests.stacks.definition.examples import edited_at
from tests.strategies import read_tree

from ..conftest import made

WIDER = read_cases(Path(__file__).with_name("wider.yaml"))

Object = dict[str, Any]


def gained(change: PermissionChange) -> list[str]:
    return [*change.weaker, *map(str, change.grants)]


def sentences(before: list[Object], after: list[Object]) -> list[str]:
    return gained(permission_change(before, after))


PROD: Object = {
    "name": "prod",
    "dataPlane": {"name": "east", "wave": 2},
    "promotion": {"from": "dev", "groups": ["deployers"], "separationOfDuties": True, "soakHours": 24},
    "gate": {"settleSeconds": 60, "probe": {"kind": "url"}, "alerts": {"kind": "prometheus"}},
    "rollout": {"canary": "east", "maxParallel": 2},
    "datasets": {"models": {"writers": ["deployers"]}},
}


def namespace(definition: Object) -> Object:
    item = made("Namespace", "prod")
    held_to = {"kind": "production", "gpuSlices": 4}
    item["metadata"]["annotations"] = {
        "tidegate.dev/definition": json.dumps(definition),
        "tidegate.dev/guardrails": json.dumps(held_to),
    }
    return item


def tables(rules: list[Object], *models: str) -> list[Object]:
    routing = {"servers": [], "models": [{"server": "s", "pool": "p", "name": name} for name in models]}
    access = {"rules": rules, "rateLimit": {"requestsPerMinute": 60, "burst": 1}}
    return [made("ConfigMap", "proxy", data={"routing.json": json.dumps(routing), "access.json": json.dumps(access)})]


def rule(*groups: str, models: tuple[str, ...] = ("*",)) -> Object:
    return {"name": "r", "groups": groups, "actions": ["infer"], "servers": ["*"], "models": models}


def test_new_permissions_to_call_are_listed_by_caller_and_models() -> None:
    before, after = tables([rule("a", models=("one",))], "one", "two"), tables([rule("a", "b")], "one", "two")
    assert permission_change(before, after).grants == (
        Grant("group a", "infer", "two of s, * of *", True),
        Grant("group b", "infer", "one of s, two of s, * of *", True),
    )
    assert permission_change(after, before).grants == ()
    new = permission_change(tables([rule("a")], "one"), after).grants[0]
    assert new == Grant("group a", "infer", "two of s", False), "a new model"


def test_weaker_protection_comes_first_and_never_has_a_tick() -> None:
    before = [namespace(PROD), *tables([rule("a", models=("one",))], "one")]
    after = [namespace({**PROD, "gate": {"settleSeconds": 60, "alerts": {}}})]
    after += tables([rule("a", models=("one", "two"))], "one", "two")
    change = stack_change("prod-east", before, after)
    text, found = page([change], "A preview"), sections([change])
    assert verdict([change]).startswith("1 thing WEAKER")
    assert len(found["Weaker than before"]) == 1, "as many as the verdict counts"
    assert Line("newly lets group a infer: two of s") in found["Stricter, or newly offered"]
    assert text.startswith("**⚠️ ")
    assert text.index("Weaker than before") < text.index("#### Changes")
    assert "no longer sends a probe in its gate" in text


def test_a_stack_of_which_only_kept_objects_remain_counts_as_new() -> None:
    before = [namespace(PROD)]
    after = [*before, *tables([rule("a")], "one")]
    change = stack_change("prod-east", before, after)
    assert not change.weaker
    assert not change.permissions.grants


def test_nothing_is_weaker_nor_granted_by_a_change_of_names() -> None:
    """A changed canary is not a weakened requirement either."""
    before = {**PROD, "servers": {"small": {"repository": {"writers": ["deployers"]}}}}
    after = {
        **PROD,
        "formerly": {
            "dataset weights": ["models"],
            "server fast": ["tiny", "small"],
            "data plane west": ["east"],
            "environment trial": ["dev"],
        },
        "promotion": {**PROD["promotion"], "from": "trial"},
        "datasets": {"weights": PROD["datasets"]["models"]},
        "servers": {"fast": before["servers"]["small"]},
        "rollout": {**PROD["rollout"], "canary": "west"},
    }
    assert sentences([namespace(before)], [namespace(after)]) == []
    wider = {**after, "datasets": {"weights": {"writers": ["deployers", "all-users"]}}}
    assert sentences([namespace(before)], [namespace(wider)]) == ["newly lets all-users write the dataset weights"]


@cache
def objects_of(definition: str) -> list[Object]:
    read = read_tree(yaml.safe_load(definition))
    return [*render(read.stacks[0], read).objects]


@pytest.mark.parametrize("name", WIDER)
def test_more_permissions_are_reported_and_the_opposite_change_is_not(name: str) -> None:
    before, after = (objects_of(edited_at(WIDER[name].get(key, {}))) for key in ("before", "after"))
    assert any(line.startswith(WIDER[name]["says"]) for line in sentences(before, after)), sentences(before, after)
    assert sentences(after, before) == []


def test_policies_that_change_together_with_their_pods_weaken_nothing() -> None:
    """A pool with its network entries and budget, and a renamed network entry."""
    pool = {"servers/main/pools/third": {"loading": {"mode": "preload"}, "placement": {"kind": "cpu"}}}
    way = {"by": ["servers"], "cidr": "198.51.100.0/24"}
    for one, other in ((pool, {}), ({"network/reach/store": way}, {"network/reach/shop": way})):
        before, after = objects_of(edited_at(one)), objects_of(edited_at(other))
        assert sentences(before, after) == sentences(after, before) == []
