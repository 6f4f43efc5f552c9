"""What a change weakens, in words: what is newly allowed, what is no longer asked, who may newly call what."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.changes.compare import compare
from rollout.changes.page import page
from rollout.changes.permissions import Grant, permission_change
from rollout.changes.stack_change import stack_change, verdict
from rollout.render import render
from tests.cases import read_cases
from tests.stacks.definition.examples import edited_at
from tests.strategies import read_tree

from ..conftest import made

WIDER = read_cases(Path(__file__).with_name("wider.yaml"))

Object = dict[str, Any]


def weaker(before: list[Object], after: list[Object]) -> list[str]:
    return [*permission_change(before, after).weaker]


def grants(before: list[Object], after: list[Object]) -> list[Grant]:
    return [*permission_change(before, after).grants]


PROD: Object = {
    "name": "prod",
    "dataPlane": {"name": "east", "wave": 2},
    "promotion": {"from": "dev", "groups": ["deployers"], "separationOfDuties": True, "soakHours": 24},
    "gate": {"settleSeconds": 60, "probe": {"kind": "url"}, "alerts": {"kind": "prometheus"}},
    "rollout": {"canary": "east", "maxParallel": 2},
    "datasets": {"models": {"writers": ["deployers"]}},
}


def namespace(definition: Object, guardrails: Object | None = None) -> Object:
    item = made("Namespace", "prod")
    held_to = {"kind": "production", "gpuSlices": 4, **(guardrails or {})}
    item["metadata"]["annotations"] = {
        "tidegate.dev/definition": json.dumps(definition),
        "tidegate.dev/guardrails": json.dumps(held_to),
    }
    return item


def without(*path: str) -> Object:
    tree: Object = json.loads(json.dumps(PROD))
    at = tree
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    return tree


def having(value: Any, *path: str) -> Object:
    tree: Object = json.loads(json.dumps(PROD))
    at = tree
    for step in path[:-1]:
        at = at.setdefault(step, {})
    at[path[-1]] = value
    return tree


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (without("promotion", "separationOfDuties"), "no longer asks for separation of duties in promotions"),
        (without("promotion", "from"), "no longer asks that versions of models served in dev before"),
        (having(4, "promotion", "soakHours"), "asks for hours of service before a promotion: 24 → 4"),
        (having(["deployers", "all"], "promotion", "groups"), "newly lets all bring in versions of models"),
        (without("gate", "probe"), "no longer sends a probe in its gate"),
        (without("gate", "alerts"), "no longer looks for alerts in its gate"),
        (having(5, "gate", "settleSeconds"), "holds its gate for seconds: 60 → 5"),
        (without("rollout", "canary"), "no longer sends east ahead as canary"),
        (having(50, "rollout", "maxParallel"), "rolls out to so many data planes at once: 2 → 50"),
        (having(1, "dataPlane", "wave"), "comes in wave: 2 → 1"),
        (having(["deployers", "x"], "datasets", "models", "writers"), "newly lets x write the dataset models"),
    ],
)
def test_what_an_environment_no_longer_asks_for_is_said_and_the_way_back_is_not(after: Object, said: str) -> None:
    old, new = [namespace(PROD)], [namespace(after)]
    assert weaker(old, new) == [said]
    assert weaker(new, old) == []


WAIVER = {"name": "w", "rule": "images-are-pinned-by-digest", "owner": "o", "reason": "r", "until": "2027-03-31"}
WAIVED = "newly has an exception from images-are-pinned-by-digest until 2027-03-31: w"
DIGESTS = {"severities": {"images-are-pinned-by-digest": "advisory"}}


def held_to(**guardrails: Any) -> list[Object]:
    return [namespace(PROD, guardrails)]


def with_proxy(**sections: Any) -> list[Object]:
    return [namespace({**PROD, **sections, "proxy": {"bodyLimit": "1Mi", **sections.get("proxy", {})}})]


def monitored(availability: str, **more: Any) -> list[Object]:
    return with_proxy(monitoring={"operator": True, "objectives": {"availability": availability}, **more})


def domino(url: str) -> list[Object]:
    return with_proxy(domino={"principalUrl": url}, proxy={"auth": {"dominoPrincipal": True}})


def authorities(*sources: Object) -> list[Object]:
    return with_proxy(proxy={"auth": {"authorities": sources}})


CA = {"configMap": "bank-ca"}


@pytest.mark.parametrize(
    ("before", "after", "said", "back"),
    [
        (held_to(), held_to(**DIGESTS), ["no longer stops at the guardrail images-are-pinned-by-digest"], []),
        (held_to(), held_to(waivers=[WAIVER]), [WAIVED], []),
        (held_to(waivers=[{**WAIVER, "until": "2027-01-01"}]), held_to(waivers=[WAIVER]), [WAIVED], []),
        (monitored("99.9"), monitored("99.5"), ["promises percent of calls (availability): 99.9 → 99.5"], []),
        (monitored("99.9"), monitored("99.9", rules=False), ["no longer makes alert rules",
         *(f"no longer promises percent of calls ({key}): {value}"
           for key, value in (("availability", 99.9), ("answered", 0), ("latency", 0)))], []),
        (domino("https://here/p"), domino("https://there/p"),
         ["newly trusts Domino's principals, as https://there/p names them"],
         ["newly trusts Domino's principals, as https://here/p names them"]),
        (authorities(CA), authorities(CA, {"secret": "bank-ca"}),
         ["newly trusts issuers by the authorities in the Secret bank-ca"], []),
    ],
)  # fmt: skip
def test_what_is_allowed_or_no_longer_demanded_is_said(
    before: list[Object], after: list[Object], said: list[str], back: list[str]
) -> None:
    assert weaker(before, after) == said
    assert weaker(after, before) == back


def tables(rules: list[Object], *models: str) -> list[Object]:
    routing = {"servers": [], "models": [{"server": "s", "pool": "p", "name": name} for name in models]}
    access = {"rules": rules, "rateLimit": {"requestsPerMinute": 60, "burst": 1}}
    return [made("ConfigMap", "proxy", data={"routing.json": json.dumps(routing), "access.json": json.dumps(access)})]


def rule(*groups: str, models: tuple[str, ...] = ("*",)) -> Object:
    return {"name": "r", "groups": groups, "actions": ["infer"], "servers": ["*"], "models": models}


def test_who_may_newly_call_what_is_told_by_caller_and_models() -> None:
    before, after = tables([rule("a", models=("one",))], "one", "two"), tables([rule("a", "b")], "one", "two")
    assert grants(before, after) == [
        Grant("group a", "infer", "two of s, * of *", True),
        Grant("group b", "infer", "one of s, two of s, * of *", True),
    ]
    assert grants(after, before) == []
    assert grants(tables([rule("a")], "one"), after)[0] == Grant("group a", "infer", "two of s", False), "a new model"


def test_what_is_weaker_stands_first_and_never_under_a_tick() -> None:
    before, after = [namespace(PROD)], [namespace(without("gate", "probe"))]
    change = stack_change("prod-east", compare(before, after), before, after)
    text = page([change], "A preview")
    assert verdict([change]).startswith("1 thing WEAKER")
    assert text.startswith("**⚠️ ")
    assert text.index("Weaker than before") < text.index("#### Changes")
    assert "no longer sends a probe in its gate" in text


def test_what_was_taken_down_but_for_what_is_kept_comes_up_as_new() -> None:
    """Its callers and ways through the network are nobody's that had none before."""
    before = [namespace(PROD)]
    after = [*before, *tables([rule("a")], "one")]
    change = stack_change("prod-east", compare(before, after), before, after)
    assert not change.is_weaker
    assert not change.permissions.grants


def test_nothing_is_weaker_nor_granted_by_a_change_of_names() -> None:
    """Nor by another canary: each of them goes ahead of the rest."""
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
    assert weaker([namespace(before)], [namespace(after)]) == []
    wider = {**after, "datasets": {"weights": {"writers": ["deployers", "everybody"]}}}
    assert weaker([namespace(before)], [namespace(wider)]) == ["newly lets everybody write the dataset weights"]


@cache
def objects_of(definition: str) -> list[Object]:
    read = read_tree(yaml.safe_load(definition))
    return [*render(read.stacks[0], read).objects]


def said(before: list[Object], after: list[Object]) -> list[str]:
    granted = [f"newly lets {each.who} {each.action}: {each.models}" for each in grants(before, after)]
    return [*weaker(before, after), *granted]


@pytest.mark.parametrize("name", WIDER)
def test_what_lets_somebody_do_more_is_said_and_the_way_back_is_not(name: str) -> None:
    before, after = (objects_of(edited_at(WIDER[name][key])) for key in ("before", "after"))
    assert any(line.startswith(WIDER[name]["says"]) for line in said(before, after)), said(before, after)
    assert said(after, before) == []


def test_what_goes_or_comes_with_its_pods_weakens_nothing() -> None:
    """A pool with its ways and its budget; a way by another name."""
    pool = {"servers/main/pools/third": {"loading": {"mode": "preload"}, "placement": {"kind": "cpu"}}}
    way = {"by": ["servers"], "cidr": "198.51.100.0/24"}
    for one, other in ((pool, {}), ({"network/reach/store": way}, {"network/reach/shop": way})):
        before, after = objects_of(edited_at(one)), objects_of(edited_at(other))
        assert said(before, after) == said(after, before) == []
