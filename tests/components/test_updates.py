import copy
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import proxy_process, routing

from components import Environment
from components.evaluate import KubernetesObject, evaluate
from stacks.load import load
from stacks.resolve import resolve
from tests.strategies import read_tree

ROOT = Path(__file__).parents[2]
Objects = dict[tuple[str, str], KubernetesObject]
# Kubernetes allows changes only of these fields of a StatefulSet, and none of a Deployment's selector or a claim.
MUTABLE = {"replicas", "template", "updateStrategy", "ordinals", "minReadySeconds"}


@pytest.fixture
def tree() -> dict[str, Any]:
    return copy.deepcopy(load(ROOT / "stacks/inference.yaml").tree)


def prod_east(tree: dict[str, Any]) -> Objects:
    definition = read_tree(tree)
    (stack,) = (stack for stack in definition.stacks if stack.name == "prod-east")
    objects = evaluate(lambda: Environment(stack.name, resolve(stack, definition.lock)))
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def changed(before: Objects, after: Objects) -> set[str]:
    return {" ".join(key) for key in before.keys() & after.keys() if before[key] != after[key]}


def named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = (item for item in items if item["name"] == name)
    return found


def model(**more: Any) -> dict[str, Any]:
    return {"name": "new", "server": "ondemand", "pool": "small", **more}


TABLES = {"ConfigMap inference-proxy-routing", "ConfigMap ondemand-small-eviction"}
SPLIT = [{"version": 1, "weight": 100}]


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (lambda tree: named(tree["images"], "proxy").update(tag="0.9.0"), {"Deployment inference-proxy"}),
        (lambda tree: named(tree["images"], "triton-next").update(tag="26.09-py3"), {"StatefulSet preload-main"}),
        (lambda tree: tree["models"].append(model(footprint="1Gi")), TABLES),  # Nothing restarts.
        (
            lambda tree: named(tree["models"], "fraud-score").update(versions=SPLIT),
            {"ConfigMap inference-proxy-routing"},
        ),
        (
            lambda tree: tree["proxy"].update(timeouts={"requestSeconds": 30}),
            {"ConfigMap inference-proxy-settings", "Deployment inference-proxy", "Namespace inference-prod"},
        ),
    ],
    ids=["tag of the proxy", "tag of one server", "new model", "shares of traffic", "time-out of the proxy"],
)
def test_an_edit_changes_the_objects_that_it_is_about(tree: dict[str, Any], edit: Any, wanted: set[str]) -> None:
    tree["images"].append({"name": "triton-next", "repository": "nvcr.io/nvidia/tritonserver", "tag": "26.08-py3"})
    named(tree["servers"], "preload")["image"] = "triton-next"
    before = prod_east(tree)
    edit(tree)
    after = prod_east(tree)
    assert before.keys() == after.keys()
    assert changed(before, after) == wanted


def test_the_routing_table_has_a_pool_with_no_replicas_on_purpose(tree: dict[str, Any]) -> None:
    def empty(objects: Objects) -> set[str]:
        text = objects["ConfigMap", "inference-proxy-routing"]["data"][proxy_process.ROUTING_FILE]
        table = routing.RoutingTable.model_validate_json(text)
        return {f"{server.name}/{pool.name}" for server in table.servers for pool in server.pools if pool.empty}

    assert not empty(prod_east(tree))
    named(named(tree["servers"], "preload")["pools"], "main")["replicas"] = 0
    for environment in tree["environments"]:
        environment.pop("servers", None)
    after = prod_east(tree)
    assert after["StatefulSet", "preload-main"]["spec"]["replicas"] == 0
    assert empty(after) == {"preload/main"}


def test_ordinary_edits_of_a_pool_touch_no_immutable_field(tree: dict[str, Any]) -> None:
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "nodes": 20} for group in plane["gpus"]]
    before = prod_east(tree)
    pool = named(named(tree["servers"], "ondemand")["pools"], "small")
    pool |= {"resources": {"cpu": "3", "memory": "20Gi"}, "sharedMemory": "2Gi", "startupSeconds": 60}
    pool |= {"tolerations": [{"key": "spot"}], "priorityClass": "high", "maxUnavailable": 2}
    pool["loading"] |= {"idleSeconds": 400, "policy": "lru-idle"}
    pool["placement"]["profile"] = "2g.20gb"
    after = prod_east(tree)
    assert before.keys() == after.keys()
    assert len(changed(before, after)) == 5, "pool, budget, policy's settings, proxy's table, devices"
    for (kind, name), item in before.items():
        other = after[kind, name]
        assert kind == "Namespace" or item["metadata"] == other["metadata"]  # It names the devices of the stack.
        if kind == "StatefulSet":
            fixed = {key: value for key, value in item["spec"].items() if key not in MUTABLE}
            assert fixed == {key: value for key, value in other["spec"].items() if key not in MUTABLE}
        if kind in ("PersistentVolume", "PersistentVolumeClaim"):
            assert item == other
