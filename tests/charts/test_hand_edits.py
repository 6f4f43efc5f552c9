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


def without(items: list[Any], *names: str) -> list[Any]:
    return [item for item in items if item["name"] not in names]


def remove_server(tree: Tree) -> None:
    tree["servers"] = without(tree["servers"], "preload")
    tree["models"] = [model for model in tree["models"] if model["server"] != "preload"]
    prod = environment(tree)
    prod["servers"] = without(prod["servers"], "preload")
    named(prod["proxy"]["access"], "model-endpoints")["servers"] = ["ondemand"]


def remove_server_from_values(values: Values) -> None:
    values["servers"] = without(values["servers"], "preload")
    named(values["proxy"]["access"], "model-endpoints")["servers"] = ["ondemand"]


QUEUE = {"kind": "queue", "min": 1, "max": 4, "queueMilliseconds": 30, "prometheusAddress": "http://prometheus:9090"}
NFS = {"kind": "nfs", "server": "nfs.example.com", "path": "/exports/more"}
INGRESS = {"kind": "ingress", "host": "models.example.com", "path": "/dev", "className": "nginx"}
BASE = [{"name": "archive", "kind": "nfs", "server": "nfs.example.com", "path": "/exports/archive"}]
REACH = {"name": "more", "by": ["proxy", "servers"], "namespaceLabels": {"team": "a"}, "ports": [443]}
PLAIN = ("resources", "rateLimit", "bodyLimit", "concurrency", "timeouts", "logLevel", "nodeSelector", "tolerations")
XLARGE = {
    "name": "xlarge",
    "placement": {"kind": "mig", "profile": "7g.80gb", "product": "NVIDIA-A100-SXM4-80GB"},
    "replicas": 2,
    "resources": {"cpu": "16", "memory": "96Gi"},
}
ZOO = {
    "name": "zoo",
    "identity": {"cloud": "gcp", "serviceAccount": "models@project.iam.gserviceaccount.com"},
    "pools": [{"name": "main", "loading": {"mode": "preload"}}],
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


def add_server(tree: Tree) -> None:
    tree["servers"].append({**ZOO, "repository": {"url": "gs://models/prod"}})
    tree["network"]["reach"].append(REACH)


def add_server_to_values(values: Values) -> None:
    repository = {"kind": "object-store", "url": "gs://models/prod"}
    values["servers"].append({**ZOO, "image": values["servers"][0]["image"], "repository": repository})
    values["network"]["reach"].append(REACH)


def plain_proxy(tree: Tree) -> None:
    for part in (tree["proxy"], environment(tree)["proxy"]):
        for key in PLAIN:
            part.pop(key, None)


def autoscale_pool(scaling: Tree) -> Edit:
    def edit(tree: Tree) -> None:
        del pool(environment(tree))["replicas"]
        del pool(tree)["replicas"]
        pool(tree).update(autoscaling=scaling)

    return Edit(edit, lambda values: pool(values).update(autoscaling=scaling))


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
    "add a server": Edit(add_server, add_server_to_values),
    "remove a server": Edit(remove_server, remove_server_from_values),
    "switch autoscaling by queue time on": autoscale_pool(QUEUE),
    "switch autoscaling off": Edit(no_autoscaling, lambda values: values["proxy"].update(autoscaling=None, replicas=4)),
    "let everything be what it is by default": Edit(plain_proxy, lambda values: values["proxy"].update(
        {"bodyLimitBytes" if key == "bodyLimit" else key: None for key in PLAIN})),
    "scale a pool to nothing": Edit(lambda tree: pool(environment(tree)).update(replicas=0),
        lambda values: pool(values).update(replicas=0)),
    "add a dataset": Edit(lambda tree: tree["datasets"].append({"name": "more", **NFS, "capacity": "1Ti"}),
        lambda values: values["datasets"].append({"name": "more", "source": NFS, "capacity": "1Ti"})),
    "change a MIG profile, from which the capacity follows":
        Edit(larger_slice("capacity"), larger_slice("capacityBytes")),
    "take whole GPUs instead of slices": Edit(lambda tree: pool(tree).update(placement={"kind": "gpu", "count": 2})),
    "change the eviction policy's image": Edit(
        lambda tree: named(tree["images"], "eviction-policy").update(tag="0.2.0"),
        lambda values: values.update(evictionPolicyImage="registry.example.com/tidegate/eviction-policy:0.2.0")),
    "add a model": Edit(
        lambda tree: tree["models"].append({"name": "zebra", "server": "ondemand", "pool": "small", "pinned": True}),
        lambda values: pool(values)["models"].append({"name": "zebra", "pinned": True})),
    "split a model's traffic": Edit(
        lambda tree: named(tree["models"], "fraud-score").update(versions=[{"version": 7, "weight": 100}]),
        lambda values: named(pool(values, "preload", "main")["models"], "fraud-score").update(
            versions=[{"version": 7, "weight": 100}])),
    "expose the proxy by an Ingress": Edit(lambda tree: environment(tree, "dev")["proxy"].update(exposure=INGRESS),
        lambda values: values["proxy"].update(exposure=INGRESS), stack="dev-lab"),
    "serve plain HTTP":
        Edit(lambda tree: environment(tree)["proxy"].pop("tls"), lambda values: values["proxy"].pop("tls")),
    "do without the Prometheus operator":
        Edit(lambda tree: tree["monitoring"].pop("operator"), lambda values: values.update(monitoring=None)),
    "join the mesh": Edit(lambda tree: tree["domino"].update(mesh={"mode": "istio", "mtls": "STRICT"}),
        lambda values: values["domino"].update(mesh={"mtls": "STRICT"})),
    "move to another namespace": Edit(lambda tree: environment(tree).update(namespace="models-prod"),
        lambda values: values["namespace"].update(name="models-prod")),
}  # fmt: skip


def reference() -> Tree:
    """The reference with a dataset that nobody needs, a proxy unlike others, and GPUs enough for every edit."""
    tree = copy.deepcopy(load(ROOT / "stacks/inference.yaml").tree)
    tree["datasets"] = [*BASE, *tree["datasets"]]
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
