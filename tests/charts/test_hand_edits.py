"""A values file that was edited by hand gives what the same edit in the definition gives."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from charts import values_of
from charts.arguments import arguments, chosen, is_list, tag
from components import EnvironmentArgs
from stacks.load import load
from stacks.resolve import resolve
from stacks.resolve.settings import ANNOTATION
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .broken_values import edited
from .rendering import ROOT, declared, object_differences, rendered

Values = dict[str, Any]


@dataclass(frozen=True)
class Edit:
    """One wish of a person, written into the definition, and into the values; often both are the same words."""

    definition: Values
    values: Values | None = None


SERVERS, POOL = "servers[ondemand]", "servers[ondemand].pools[small]"
PROD, STACK = "environments[prod]", "prod-east"
PLAIN = ("resources", "rateLimit", "bodyLimit", "concurrency", "timeouts", "logLevel", "nodeSelector", "tolerations")
XLARGE = {
    "name": "xlarge",
    "placement": {"kind": "mig", "profile": "7g.80gb", "product": "NVIDIA-A100-SXM4-80GB"},
    "replicas": 2,
    "resources": {"cpu": "16", "memory": "96Gi"},
}
TRANSLATE = {"name": "translate", "footprint": "40Gi"}


def and_one(item: Tree) -> Callable[[list[Tree]], list[Tree]]:
    return lambda items: [*items, item]


def plain(proxy: Tree) -> Tree:
    return {key: value for key, value in proxy.items() if key not in PLAIN}


EDITS = {
    "add a pool with a model": Edit(
        {f"{SERVERS}.pools": and_one({**XLARGE, "loading": {"mode": "on-demand", "capacity": "72Gi"}}),
         "models": and_one({"name": "translate", "server": "ondemand", "pool": "xlarge", "footprint": "40Gi"})},
        {f"{SERVERS}.pools": and_one(
            {**XLARGE, "loading": {"mode": "on-demand", "capacity": "72Gi"}, "models": [TRANSLATE]})}),
    "let everything be what it is by default": Edit({"proxy": plain, f"{PROD}.proxy": plain},
        {f"proxy.{key}": None for key in PLAIN}),
    "change a MIG profile and the capacity": Edit(
        {f"{POOL}.placement.profile": "2g.20gb", f"{POOL}.loading.capacity": "18G"}),
    "scale a pool to nothing": Edit({f"{PROD}.{POOL}.replicas": 0}, {f"{POOL}.replicas": 0}),
    "evict by a policy of one's own": Edit(
        {"evictionPolicies": [{"name": "own", "settings": [{"name": "first", "type": "integer"}]}],
         f"{POOL}.loading.policy": "own", f"{POOL}.loading.policySettings": {"first": 3}},
        {f"{POOL}.loading.policy": "own", f"{POOL}.policySettings": {"first": "3"}}),
}  # fmt: skip


def reference() -> Tree:
    """The reference with a proxy unlike others, and GPUs enough for every edit."""
    tree = copy.deepcopy(load(ROOT / "stacks/inference.yaml").tree)
    tree["proxy"].update(concurrency=7, bodyLimit="1Mi", logLevel="debug", timeouts={"drainSeconds": 5})
    for plane in tree["dataPlanes"]:
        groups = [{**group, "nodes": 50} for group in plane["gpus"]]
        whole = {"nodes": 50, "product": "NVIDIA-L40S", "perNode": 8}
        large = {**groups[0], "mig": {"slices": {"7g.80gb": 1}}}
        plane["gpus"] = [*groups, whole, large]
    for one in tree["environments"]:
        one.get("guardrails", tree["guardrails"])["gpuSlices"] = 100
    return tree


def resolved(tree: Tree, name: str) -> EnvironmentArgs:
    definition = read_tree(tree)
    return resolve(next(stack for stack in definition.stacks if stack.name == name), definition.lock)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edit_of_the_values_gives_what_the_same_edit_of_the_definition_gives(edit: Edit) -> None:
    before = resolved(reference(), STACK)
    wanted = declared(resolved(edited(edit.definition, reference()), STACK))
    assert object_differences(declared(before), wanted), "the edit changes nothing"
    values = edited(edit.values or edit.definition, values_of(before))
    differing = object_differences(wanted, rendered(values))
    assert [each for each in differing if ANNOTATION not in each] == []  # which tells what the definition was


def brief(values: Values, kinds: tuple[type, ...], *, item: bool = False) -> Values:
    """The values, and in items of lists not what holds anyway; elsewhere the chart's own values.yaml would hold."""
    owner = chosen(kinds, values)
    told_by = tag(kinds) if len(kinds) > 1 else None
    found: Values = {}
    for argument in (argument for argument in arguments(owner) if argument.key in values):
        value = values[argument.key]
        if item and not argument.required and argument.key != told_by and value in (argument.default, [], {}):
            continue
        if argument.classes and is_list(argument.kind):
            found[argument.key] = [brief(one, argument.classes, item=True) for one in value]
        else:
            found[argument.key] = brief(value, argument.classes, item=item) if argument.classes else value
    return found


@settings(parent=examples(15), suppress_health_check=list(HealthCheck))
@given(definition_trees())
def test_items_need_not_say_what_holds_anyway(tree: Tree) -> None:
    definition = read_tree(tree)
    args = resolve(definition.stacks[0], definition.lock)
    short = brief(values_of(args), (EnvironmentArgs,))
    assert object_differences(declared(args), rendered(short)) == []
