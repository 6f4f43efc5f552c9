"""Updates are boring: an edit changes the objects that it is about, and no immutable field."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import eviction, eviction_process

from components import Environment, evaluate
from components.evaluate import KubernetesObject
from stacks.load import load
from stacks.resolve import resolve
from tests.strategies import read_tree

ROOT = Path(__file__).parents[2]
Objects = dict[tuple[str, str], KubernetesObject]
# Of a StatefulSet Kubernetes lets only these be changed, of a Deployment's selector and a claim's volume nothing.
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


def test_another_tag_of_the_proxy_changes_one_pod_template(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    named(tree["images"], "proxy")["tag"] = "0.2.0"
    after = prod_east(tree)
    assert before.keys() == after.keys()
    assert changed(before, after) == {"Deployment inference-proxy"}
    key = ("Deployment", "inference-proxy")
    after[key]["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "registry.example.com/tidegate/inference-proxy:0.1.0"
    )
    assert before == after


def test_a_server_with_an_image_of_its_own_changes_alone(tree: dict[str, Any]) -> None:
    tree["images"].append({"name": "triton-next", "repository": "nvcr.io/nvidia/tritonserver", "tag": "26.08-py3"})
    named(tree["servers"], "preload")["image"] = "triton-next"
    before = prod_east(tree)
    named(tree["images"], "triton-next")["tag"] = "26.09-py3"
    assert changed(before, prod_east(tree)) == {"StatefulSet preload-main"}


def test_a_new_model_changes_tables_and_restarts_nothing(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    tree["models"].append({"name": "new", "server": "ondemand", "pool": "small", "footprint": "1Gi"})
    after = prod_east(tree)
    assert before.keys() == after.keys()
    assert changed(before, after) == {"ConfigMap inference-proxy-routing", "ConfigMap ondemand-small-eviction"}


def test_another_share_of_traffic_changes_the_routing_table_only(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    named(tree["models"], "fraud-score")["versions"] = [{"version": 3, "weight": 50}, {"version": 4, "weight": 50}]
    assert changed(before, prod_east(tree)) == {"ConfigMap inference-proxy-routing"}


def test_a_candidate_changes_tables_and_restarts_nothing(tree: dict[str, Any]) -> None:
    """The pool's eviction policy loads it beside the versions with traffic."""
    model: dict[str, Any] = {"name": "new", "server": "ondemand", "pool": "small"}
    model["versions"] = [{"version": 1, "weight": 100}]
    tree["models"].append(model)
    before = prod_east(tree)
    model["mirror"] = {"version": 2, "percent": 10}
    after = prod_east(tree)
    assert changed(before, after) == {"ConfigMap inference-proxy-routing", "ConfigMap ondemand-small-eviction"}
    (settings,) = (item["data"] for key, item in after.items() if "ondemand-small-eviction" in key)
    managed = eviction.EvictionSettings.model_validate_json(settings[eviction_process.SETTINGS_FILE]).models
    assert [each.versions for each in managed if each.name == "new"] == [(1, 2)]


def test_another_time_out_starts_new_proxies(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    tree["proxy"]["timeouts"] = {"requestSeconds": 30}
    assert changed(before, prod_east(tree)) == {"ConfigMap inference-proxy-settings", "Deployment inference-proxy"}


def test_a_removed_pool_disappears_with_all_its_objects(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    server = named(tree["servers"], "ondemand")
    server["pools"] = [pool for pool in server["pools"] if pool["name"] != "large"]
    tree["models"] = [model for model in tree["models"] if model.get("pool") != "large"]
    after = prod_east(tree)
    assert {" ".join(key) for key in before.keys() - after.keys()} == {
        "ConfigMap ondemand-large-eviction",
        "PodDisruptionBudget ondemand-large",
        "Service ondemand-large",
        "Service ondemand-large-headless",
        "StatefulSet ondemand-large",
    }
    assert changed(before, after) == {"ConfigMap inference-proxy-routing"}


def test_a_new_pool_appears_beside_the_others(tree: dict[str, Any]) -> None:
    before = prod_east(tree)
    server = named(tree["servers"], "ondemand")
    server["pools"].append({**named(server["pools"], "small"), "name": "cpu", "placement": {"kind": "cpu"}})
    after = prod_east(tree)
    assert {kind for kind, _ in after.keys() - before.keys()} == {
        "ConfigMap",
        "PodDisruptionBudget",
        "Service",
        "StatefulSet",
    }
    assert before.keys() <= after.keys()
    assert changed(before, after) == {"ConfigMap inference-proxy-routing"}


@pytest.mark.parametrize(
    "edit",
    [
        lambda pool: pool.update(replicas=3),
        lambda pool: pool.update(resources={"cpu": "3", "memory": "20Gi"}),
        lambda pool: pool.update(sharedMemory="2Gi"),
        lambda pool: pool["loading"].update(idleSeconds=400, policy="lru"),
        lambda pool: pool.update(startupSeconds=60),
        lambda pool: pool["placement"].update(profile="2g.20gb"),
        lambda pool: pool.update(tolerations=[{"key": "spot"}]),
        lambda pool: pool.update(priorityClass="high"),
        lambda pool: pool.update(maxUnavailable=2),
    ],
)
def test_ordinary_edits_of_a_pool_touch_no_immutable_field(tree: dict[str, Any], edit: Any) -> None:
    for plane in tree["dataPlanes"]:
        plane["gpus"] = [{**group, "nodes": 20} for group in plane["gpus"]]
    for environment in tree["environments"]:
        environment.pop("servers", None)
    before = prod_east(tree)
    edit(named(named(tree["servers"], "ondemand")["pools"], "small"))
    after = prod_east(tree)
    assert before.keys() == after.keys()
    assert changed(before, after)
    for (kind, name), item in before.items():
        other = after[kind, name]
        assert item["metadata"] == other["metadata"]
        if kind == "StatefulSet":
            fixed = {key: value for key, value in item["spec"].items() if key not in MUTABLE}
            assert fixed == {key: value for key, value in other["spec"].items() if key not in MUTABLE}
        if kind in ("PersistentVolume", "PersistentVolumeClaim"):
            assert item == other
        if kind == "Service":
            assert item["spec"].get("clusterIP") == other["spec"].get("clusterIP")
        if kind == "Deployment":
            assert item["spec"]["selector"] == other["spec"]["selector"]
