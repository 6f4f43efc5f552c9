"""A values file that was edited by hand gives what the same edit in the definition gives."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
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
    """One wish of a person, written into the definition, and written into the values."""

    definition: Callable[[Tree], object]
    values: Callable[[Values], object]
    stack: str = "prod-east"


def named(items: list[Any], name: str) -> Any:
    (found,) = (item for item in items if item["name"] == name)
    return found


def pool(tree: Tree, server: str, name: str) -> Any:
    return named(named(tree["servers"], server)["pools"], name)


def environment(tree: Tree, name: str) -> Any:
    return named(tree["environments"], name)


def without(items: list[Any], *names: str) -> list[Any]:
    return [item for item in items if item["name"] not in names]


def remove_pool(tree: Tree) -> None:
    server = named(tree["servers"], "ondemand")
    server["pools"] = without(server["pools"], "large")
    tree["models"] = [model for model in tree["models"] if model.get("pool") != "large"]


def remove_pool_from_values(values: Values) -> None:
    server = named(values["servers"], "ondemand")
    server["pools"] = without(server["pools"], "large")


def remove_server(tree: Tree) -> None:
    tree["servers"] = without(tree["servers"], "preload")
    tree["models"] = [model for model in tree["models"] if model["server"] != "preload"]
    prod = environment(tree, "prod")
    prod["servers"] = without(prod["servers"], "preload")
    named(prod["proxy"]["access"], "model-endpoints")["servers"] = ["ondemand"]


def remove_server_from_values(values: Values) -> None:
    values["servers"] = without(values["servers"], "preload")
    named(values["proxy"]["access"], "model-endpoints")["servers"] = ["ondemand"]


def add_pool(tree: Tree) -> None:
    named(tree["servers"], "ondemand")["pools"].append(
        yaml.safe_load("""
            name: xlarge
            loading: {mode: on-demand, capacity: 72Gi}
            placement: {kind: mig, profile: 7g.80gb, product: NVIDIA-A100-SXM4-80GB}
            replicas: 2
            resources: {cpu: "16", memory: 96Gi}
            """)
    )
    tree["models"].append({"name": "translate", "server": "ondemand", "pool": "xlarge", "footprint": "40Gi"})


def add_pool_to_values(values: Values) -> None:
    named(values["servers"], "ondemand")["pools"].append(
        yaml.safe_load("""
            name: xlarge
            loading:
              mode: on-demand
              capacityBytes: 77309411328
            placement: {kind: mig, profile: 7g.80gb, product: NVIDIA-A100-SXM4-80GB}
            replicas: 2
            resources: {cpu: "16", memory: 96Gi}
            models:
              - {name: translate, footprintBytes: 42949672960}
            """)
    )


QUEUE = {"kind": "queue", "min": 1, "max": 4, "queueMilliseconds": 30, "prometheusAddress": "http://prometheus:9090"}
CPU = {"kind": "cpu", "min": 2, "max": 5, "cpuPercent": 60}
NFS = {"server": "nfs.example.com", "path": "/exports/more"}
INGRESS = {"kind": "ingress", "host": "models.example.com", "path": "/dev", "className": "nginx"}
RULE = {"name": "zoo", "groups": ["keepers"], "actions": ["infer"], "servers": ["preload"], "models": ["lion-*"]}
BASE = [{"name": "archive", "kind": "nfs", "server": "nfs.example.com", "path": "/exports/archive"}]


SLICE = {"kind": "mig", "profile": "1g.10gb"}
REACH = {"name": "more", "by": ["proxy", "servers"], "namespaceLabels": {"team": "a"}, "ports": [443]}
CALLER = {"name": "more", "namespaceLabels": {"team": "a"}, "podLabels": {"app": "b"}}
IDP = {"issuer": "https://second.example.com", "audiences": ["inference"]}
PLAIN = ("resources", "rateLimit", "bodyLimit", "concurrency", "timeouts", "logLevel", "nodeSelector", "tolerations")


def add_server(tree: Tree) -> None:
    tree["servers"].append(
        {
            "name": "zoo",
            "repository": {"url": "gs://models/prod"},
            "identity": {"cloud": "gcp", "serviceAccount": "models@project.iam.gserviceaccount.com"},
            "pools": [{"name": "main", "loading": {"mode": "preload"}}],
        }
    )
    tree["network"]["reach"].append(REACH)


def add_server_to_values(values: Values) -> None:
    values["servers"].append(
        {
            "name": "zoo",
            "image": values["servers"][0]["image"],
            "repository": {"kind": "object-store", "url": "gs://models/prod"},
            "identity": {"cloud": "gcp", "serviceAccount": "models@project.iam.gserviceaccount.com"},
            "pools": [{"name": "main", "loading": {"mode": "preload"}}],
        }
    )
    values["network"]["reach"].append(REACH)


def plain_proxy(tree: Tree) -> None:
    for part in (tree["proxy"], environment(tree, "prod")["proxy"]):
        for key in PLAIN:
            part.pop(key, None)


def plain_proxy_in_values(values: Values) -> None:
    values["proxy"].update({"bodyLimitBytes" if key == "bodyLimit" else key: None for key in PLAIN})


def scale_pool(tree: Tree) -> None:
    pool(environment(tree, "prod"), "ondemand", "small")["replicas"] = 5


def autoscale_pool(scaling: Tree) -> Callable[[Tree], None]:
    def edit(tree: Tree) -> None:
        del pool(environment(tree, "prod"), "ondemand", "small")["replicas"]
        shared = pool(tree, "ondemand", "small")
        del shared["replicas"]
        shared["autoscaling"] = scaling

    return edit


def no_autoscaling(tree: Tree) -> None:
    proxy = environment(tree, "prod")["proxy"]
    del proxy["autoscaling"]
    proxy["replicas"] = 4


def tls_to_triton(tree: Tree) -> None:
    named(tree["servers"], "preload")["triton"] = {"grpcTls": {"secret": "triton-tls"}}


def tls_to_triton_in_values(values: Values) -> None:
    named(values["servers"], "preload")["triton"]["grpcTls"] = {"secret": "triton-tls"}


EDITS = {
    "add a pool with a model": Edit(add_pool, add_pool_to_values),
    "remove a pool": Edit(remove_pool, remove_pool_from_values),
    "remove a server": Edit(remove_server, remove_server_from_values),
    "switch autoscaling by CPU on":
        Edit(autoscale_pool(CPU), lambda values: pool(values, "ondemand", "small").update(autoscaling=CPU)),
    "switch autoscaling by queue time on":
        Edit(autoscale_pool(QUEUE), lambda values: pool(values, "ondemand", "small").update(autoscaling=QUEUE)),
    "switch autoscaling off": Edit(no_autoscaling, lambda values: values["proxy"].update(autoscaling=None, replicas=4)),
    "switch autoscaling on with its bounds alone": Edit(autoscale_pool({"kind": "cpu", "min": 1, "max": 3}),
        lambda values: pool(values, "ondemand", "small").update(autoscaling={"kind": "cpu", "min": 1, "max": 3})),
    "add a pool with what it needs and no more": Edit(
        lambda tree: named(tree["servers"], "ondemand")["pools"].append(
            {"name": "zplain", "loading": {"mode": "on-demand"}, "placement": SLICE}
        ),
        lambda values: named(values["servers"], "ondemand")["pools"].append(
            {"name": "zplain", "loading": {"mode": "on-demand"}, "placement": SLICE}
        ),
    ),
    "add a preloading pool on CPU": Edit(
        lambda tree: named(tree["servers"], "ondemand")["pools"].append(
            {"name": "zplain", "loading": {"mode": "preload"}}
        ),
        lambda values: named(values["servers"], "ondemand")["pools"].append(
            {"name": "zplain", "loading": {"mode": "preload"}}
        ),
    ),
    "add a server": Edit(add_server, add_server_to_values),
    "set an environment variable": Edit(
        lambda tree: named(tree["servers"], "preload").update(triton={"environment": {"A": "b"}}),
        lambda values: named(values["servers"], "preload").update(triton={"environment": {"A": "b"}})),
    "let the proxy reach somebody": Edit(lambda tree: tree["network"]["reach"].append(REACH),
        lambda values: values["network"]["reach"].append(REACH)),
    "let somebody call the proxy": Edit(lambda tree: tree["network"].setdefault("callers", []).append(CALLER),
        lambda values: values["network"]["callers"].append(CALLER)),
    "add an identity provider": Edit(lambda tree: tree["proxy"]["auth"]["oidc"].append(IDP),
        lambda values: values["proxy"]["auth"]["oidc"].append(IDP)),
    "let everything be what it is by default": Edit(plain_proxy, plain_proxy_in_values),
    "scale a pool": Edit(scale_pool, lambda values: pool(values, "ondemand", "small").update(replicas=5)),
    "scale a pool to nothing": Edit(
        lambda tree: pool(environment(tree, "prod"), "ondemand", "small").update(replicas=0),
        lambda values: pool(values, "ondemand", "small").update(replicas=0)),
    "remove a dataset": Edit(lambda tree: tree.update(datasets=without(tree["datasets"], "archive")),
        lambda values: values.update(datasets=without(values["datasets"], "archive"))),
    "add a dataset": Edit(
        lambda tree: tree["datasets"].append({"name": "more", "kind": "nfs", **NFS, "capacity": "1Ti"}),
        lambda values: values["datasets"].append({"name": "more", "source": {"kind": "nfs", **NFS}, "capacity": "1Ti"}),
    ),
    "change a MIG profile": Edit(lambda tree: pool(tree, "ondemand", "small")["placement"].update(profile="2g.20gb"),
        lambda values: pool(values, "ondemand", "small")["placement"].update(profile="2g.20gb")),
    "change a MIG profile, from which the capacity follows": Edit(
        lambda tree: (
            (in_definition := pool(tree, "ondemand", "small"))["placement"].update(profile="2g.20gb")
            or in_definition["loading"].pop("capacity", None)
        ),
        lambda values: (
            (in_values := pool(values, "ondemand", "small"))["placement"].update(profile="2g.20gb")
            or in_values["loading"].pop("capacityBytes", None)
        ),
    ),
    "take whole GPUs instead of slices": Edit(
        lambda tree: pool(tree, "ondemand", "small").update(placement={"kind": "gpu", "count": 2}),
        lambda values: pool(values, "ondemand", "small").update(placement={"kind": "gpu", "count": 2})),
    "change the proxy's image": Edit(lambda tree: named(tree["images"], "proxy").update(tag="0.2.0"),
        lambda values: values["proxy"].update(image="registry.example.com/tidegate/inference-proxy:0.2.0")),
    "change the eviction policy's image": Edit(
        lambda tree: named(tree["images"], "eviction-policy").update(tag="0.2.0"),
        lambda values: values.update(evictionPolicyImage="registry.example.com/tidegate/eviction-policy:0.2.0")),
    "add an access rule":
        Edit(lambda tree: tree["proxy"]["access"].append(RULE), lambda values: values["proxy"]["access"].append(RULE)),
    "add a model": Edit(
        lambda tree: tree["models"].append({"name": "zebra", "server": "ondemand", "pool": "small", "pinned": True}),
        lambda values: pool(values, "ondemand", "small")["models"].append({"name": "zebra", "pinned": True})),
    "split a model's traffic": Edit(
        lambda tree: named(tree["models"], "fraud-score").update(versions=[{"version": 7, "weight": 100}]),
        lambda values: named(pool(values, "preload", "main")["models"], "fraud-score").update(
            versions=[{"version": 7, "weight": 100}]
        ),
    ),
    "mirror a model's requests": Edit(
        lambda tree: named(tree["models"], "fraud-score").update(mirror={"version": 7, "percent": 5}),
        lambda values: named(pool(values, "preload", "main")["models"], "fraud-score").update(
            mirror={"version": 7, "percent": 5}
        ),
    ),
    "trace calls": Edit(lambda tree: tree["proxy"].update(tracing={"endpoint": "http://collector:4318"}),
        lambda values: values["proxy"].update(tracing={"endpoint": "http://collector:4318"})),
    "expose the proxy by an Ingress": Edit(
        lambda tree: environment(tree, "dev")["proxy"].update(exposure=INGRESS),
        lambda values: values["proxy"].update(exposure=INGRESS),
        stack="dev-lab",
    ),
    "serve plain HTTP":
        Edit(lambda tree: environment(tree, "prod")["proxy"].pop("tls"), lambda values: values["proxy"].pop("tls")),
    "encrypt gRPC to a server": Edit(tls_to_triton, tls_to_triton_in_values),
    "switch alerts off": Edit(lambda tree: tree["monitoring"].update(rules=False),
        lambda values: values["monitoring"].update(rules=False)),
    "do without the Prometheus operator":
        Edit(lambda tree: tree["monitoring"].pop("operator"), lambda values: values.update(monitoring=None)),
    "do without Domino": Edit(lambda tree: tree.pop("domino"), lambda values: values.pop("domino")),
    "join the mesh": Edit(lambda tree: tree["domino"].update(mesh={"mode": "istio", "mtls": "STRICT"}),
        lambda values: values["domino"].update(mesh={"mtls": "STRICT"})),
    "move to another namespace": Edit(lambda tree: environment(tree, "prod").update(namespace="models-prod"),
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
    edit.values(values)
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
