"""What a definition says of all pods is in every one of them, and where they may be is written as Kubernetes has it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from components import Environment
from components.evaluate import KubernetesObject, evaluate
from stacks.resolve import resolve
from stacks.validate import read_definition

FILE = Path(__file__).parents[1] / "definitions/everything.yaml"
SAID = yaml.load(FILE.read_text("utf-8"), yaml.CSafeLoader)


@pytest.fixture(scope="module")
def workloads() -> dict[str, KubernetesObject]:
    definition = read_definition(FILE)
    (stack,) = definition.stacks
    objects = evaluate(lambda: Environment(stack.name, resolve(stack, definition.lock)))
    return {item["metadata"]["name"]: item for item in objects if item["kind"] in ("StatefulSet", "Deployment")}


def containers(item: KubernetesObject) -> list[Any]:
    spec = item["spec"]["template"]["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def test_every_pod_carries_the_annotations_and_every_container_the_variables(
    workloads: dict[str, KubernetesObject],
) -> None:
    variables = [{"name": name, "value": value} for name, value in sorted(SAID["pods"]["environment"].items())]
    for item in workloads.values():
        annotations = item["spec"]["template"]["metadata"]["annotations"]
        assert SAID["pods"]["annotations"].items() <= annotations.items()
        for container in containers(item):
            assert [each for each in container["env"] if each in variables] == variables
            assert container["imagePullPolicy"] == "Always"
    assert {container["name"] for item in workloads.values() for container in containers(item)} == {
        "proxy", "triton", "eviction-policy",
    }  # fmt: skip


def test_variables_of_one_server_stand_beside_those_of_all_pods(workloads: dict[str, KubernetesObject]) -> None:
    (triton,) = containers(workloads["preload-mixed"])
    names = [each["name"] for each in triton["env"]]
    assert {"HOME", "OMP_NUM_THREADS", "HTTPS_PROXY", "NO_PROXY"} <= {*names}
    assert len(names) == len({*names})


def test_an_affinity_is_that_of_the_definition(workloads: dict[str, KubernetesObject]) -> None:
    specs = {name: item["spec"]["template"]["spec"] for name, item in workloads.items()}
    assert specs["inference-proxy"]["affinity"] == SAID["proxy"]["affinity"]
    assert specs["preload-mixed"]["affinity"] == SAID["servers"][0]["pools"][0]["affinity"]
    assert "affinity" not in specs["preload-sliced"]


def test_an_operator_is_the_one_that_is_said_or_follows_from_the_value(workloads: dict[str, KubernetesObject]) -> None:
    tolerations = workloads["preload-mixed"]["spec"]["template"]["spec"]["tolerations"]
    assert [(each["key"], each["operator"], each.get("value")) for each in tolerations] == [
        ("nvidia.com/gpu", "Exists", None),
        ("dedicated", "Equal", "inference"),
        ("spot", "Exists", None),
        ("team", "Equal", "inference"),
        ("maintenance", "Exists", None),
    ]
