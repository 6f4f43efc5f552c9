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
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from .rendering import ROOT, declared, object_differences, rendered, without_policy

Values = dict[str, Any]


@dataclass(frozen=True)
class Edit:
    """One wish of a person, written into the definition, and into the values; often both are the same words."""

    definition: Callable[[Tree], object]
    values: Callable[[Values], object] | None = None
    stack: str = "prod-east"


def named(items: list[Any], name: str) -> Any:
    (found,) = (item for item in items if item["name"] == name)
    return found


def pool(tree: Tree, server: str = "ondemand", name: str = "small") -> Any:
    return named(named(tree["servers"], server)["pools"], name)


def environment(tree: Tree, name: str = "prod") -> Any:
    return named(tree["environments"], name)


INGRESS = {"kind": "ingress", "host": "models.example.com", "path": "/dev", "className": "nginx"}
PLAIN = ("resources", "rateLimit", "bodyLimit", "concurrency", "timeouts", "logLevel", "nodeSelector", "tolerations")
XLARGE = {
    "name": "xlarge",
    "placement": {"kind": "mig", "profile": "7g.80gb", "product": "NVIDIA-A100-SXM4-80GB"},
    "replicas": 2,
    "resources": {"cpu": "16", "memory": "96Gi"},
}


def add_pool(tree: Tree) -> None:
    tree["servers"][-1]["pools"].append({**XLARGE, "loading": {"mode": "on-demand", "capacity": "72Gi"}})
    tree["models"].append({"name": "translate", "server": "ondemand", "pool": "xlarge", "footprint": "40Gi"})


def add_pool_to_values(values: Values) -> None:
    loading, models = (
        {"mode": "on-demand", "capacityBytes": 72 << 30},
        [{"name": "translate", "footprintBytes": 40 << 30}],
    )
    named(values["servers"], "ondemand")["pools"].append({**XLARGE, "loading": loading, "models": models})


def plain_proxy(tree: Tree) -> None:
    for part in (tree["proxy"], environment(tree)["proxy"]):
        for key in PLAIN:
            part.pop(key, None)


def no_autoscaling(tree: Tree) -> None:
    proxy = environment(tree)["proxy"]
    del proxy["autoscaling"]
    proxy["replicas"] = 4


def larger_slice(capacity: str) -> Callable[[Tree], None]:
    def edit(tree: Tree) -> None:
        pool(tree)["placement"].update(profile="2g.20gb")
        pool(tree)["loading"].pop(capacity, None)

    return edit


EDITS = {
    "add a pool with a model": Edit(add_pool, add_pool_to_values),
    "switch autoscaling off": Edit(no_autoscaling, lambda values: values["proxy"].update(autoscaling=None, replicas=4)),
    "let everything be what it is by default": Edit(plain_proxy, lambda values: values["proxy"].update(
        {"bodyLimitBytes" if key == "bodyLimit" else key: None for key in PLAIN})),
    "scale a pool to nothing": Edit(lambda tree: pool(environment(tree)).update(replicas=0),
        lambda values: pool(values).update(replicas=0)),
    "change a MIG profile, from which the capacity follows":
        Edit(larger_slice("capacity"), larger_slice("capacityBytes")),
    "take whole GPUs instead of slices": Edit(lambda tree: pool(tree).update(placement={"kind": "gpu", "count": 2})),
    "change the eviction policy's image": Edit(
        lambda tree: named(tree["images"], "eviction-policy").update(tag="0.2.0"),
        lambda values: values.update(evictionPolicyImage="registry.example.com/tidegate/eviction-policy:0.2.0")),
    "add a model": Edit(
        lambda tree: tree["models"].append({"name": "zebra", "server": "ondemand", "pool": "small", "pinned": True}),
        lambda values: pool(values)["models"].append({"name": "zebra", "pinned": True})),
    "expose the proxy by an Ingress": Edit(lambda tree: environment(tree, "dev")["proxy"].update(exposure=INGRESS),
        lambda values: values["proxy"].update(exposure=INGRESS), stack="dev-lab"),
    "join the mesh": Edit(lambda tree: tree["domino"].update(mesh={"mode": "istio", "mtls": "STRICT"}),
        lambda values: values["domino"].update(mesh={"mtls": "STRICT"})),
    "move to another namespace": Edit(lambda tree: environment(tree).update(namespace="models-prod"),
        lambda values: values["namespace"].update(name="models-prod")),
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
    before = resolved(reference(), edit.stack)
    tree = reference()
    edit.definition(tree)
    wanted = declared(resolved(tree, edit.stack))
    assert object_differences(declared(before), wanted), "the edit changes nothing"
    values = values_of(before)
    (edit.values or edit.definition)(values)
    assert object_differences(wanted, without_policy(rendered(values))) == []


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
    assert object_differences(declared(args), without_policy(rendered(short))) == []
