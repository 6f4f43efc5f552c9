"""Resolving is pure: the same definition gives the same environment, and environments differ only in their overlays."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components import Environment, EnvironmentArgs, evaluate
from components.evaluate import KubernetesObject
from components.proxy import CONFIG_CHECKSUM
from stacks.definition.images import Image
from stacks.load import load
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "stacks/inference.yaml"


def objects_of(definition: Definition, name: str) -> list[KubernetesObject]:
    (stack,) = (stack for stack in definition.stacks if stack.name == name)
    return evaluate(lambda: Environment("x", resolve(stack, definition.lock)))


def resolved(definition: Definition) -> dict[str, EnvironmentArgs]:
    return {stack.name: resolve(stack, definition.lock) for stack in definition.stacks}


def shuffled(part: Any, chance: random.Random) -> Any:
    """The same tree with the keys of its mappings and the items of its lists of mappings in another order."""
    if isinstance(part, dict):
        keys = list(part)
        chance.shuffle(keys)
        return {key: shuffled(part[key], chance) for key in keys}
    if isinstance(part, list):
        items = [shuffled(item, chance) for item in part]
        if all(isinstance(item, dict) and ("name" in item or "version" in item) for item in items):
            chance.shuffle(items)
        return items
    return part


@settings(parent=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees(), st.integers())
def test_the_order_of_items_and_keys_changes_nothing(tree: Tree, seed: int) -> None:
    other = shuffled(tree, random.Random(seed))
    assert resolved(read_tree(tree)) == resolved(read_tree(other))


@settings(parent=examples(10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_digests_change_images_and_nothing_else(tree: Tree) -> None:
    plain, pinned = read_tree(tree), read_tree(tree, pinned=True)
    for stack in plain.stacks:
        before = objects_of(plain, stack.name)
        after = objects_of(pinned, stack.name)
        changed = {path[-1] for path in differences(before, after)}
        assert changed == {"image"}


# ---- dev and prod -------------------------------------------------------------------------------------------------


def differences(one: Any, other: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Paths of all values that differ; objects and named items are told apart by kind and name."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            found
            for key in one.keys() | other.keys()
            for found in differences(one.get(key), other.get(key), (*path, str(key)))
        }
    if isinstance(one, list) and isinstance(other, list):
        left, right = _by_identity(one), _by_identity(other)
        if left is not None and right is not None:
            return differences(left, right, path)
    return set() if one == other else {path}


def _by_identity(items: list[Any]) -> dict[str, Any] | None:
    if not all(isinstance(item, dict) for item in items):
        return None
    keys = [
        f"{item['kind']} {item['metadata']['name']}" if {"kind", "metadata"} <= item.keys() else str(item.get("name"))
        for item in items
    ]
    return dict(zip(keys, items, strict=True)) if len(set(keys)) == len(keys) else None


def without_identity(objects: list[KubernetesObject], stack: Stack) -> Any:
    """The objects with the environment's own name and namespace taken out of their texts."""
    return _replaced(objects, {stack.namespace: "NAMESPACE", stack.environment.name: "ENVIRONMENT"})


def _replaced(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, dict):
        # The checksum is of settings of which one is the environment's name.
        keys = [key for key in value if key != CONFIG_CHECKSUM]
        return {key: _replaced(value[key], words) for key in keys}
    if isinstance(value, list):
        return [_replaced(item, words) for item in value]
    if not isinstance(value, str):
        return value
    for word, mark in words.items():
        if value == word:
            return mark
        if mark == "NAMESPACE":
            value = value.replace(word, mark)
        else:
            value = value.replace(f'"environment": "{word}"', f'"environment": "{mark}"')
    return value


IDENTITY = {"name", "namespace", "labels", "annotations", "production", "local"}


def reference_tree() -> Tree:
    return copy.deepcopy(load(REFERENCE).tree)


def environment(tree: Tree, name: str) -> Tree:
    (found,) = (item for item in tree["environments"] if item["name"] == name)
    return dict(found)


def test_without_overlays_environments_differ_in_nothing_but_their_names() -> None:
    tree = reference_tree()
    tree["environments"] = [
        {"name": "dev", "namespace": "inference-dev"},
        {"name": "prod", "namespace": "inference-prod"},
    ]
    (plane,) = (plane for plane in tree["dataPlanes"] if plane["name"] == "east")
    tree["dataPlanes"] = [{**plane, "environments": ["dev", "prod"]}]
    definition = read_tree(tree)
    dev, prod = definition.stacks
    assert without_identity(objects_of(definition, dev.name), dev) == without_identity(
        objects_of(definition, prod.name), prod
    )


def leaves(part: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of an overlay's values; named items by their names."""
    if isinstance(part, dict):
        return [leaf for key, item in part.items() for leaf in leaves(item, (*path, key))]
    if isinstance(part, list) and part and all(isinstance(item, dict) and "name" in item for item in part):
        return [
            leaf
            for item in part
            for leaf in leaves(
                {k: v for k, v in item.items() if k != "name"} or {"name": item["name"]}, (*path, item["name"])
            )
        ]
    return [path]


def without_leaf(part: Any, path: tuple[str, ...]) -> Any:
    """The overlay without one of its values."""
    if isinstance(part, dict):
        if len(path) == 1:
            return {key: item for key, item in part.items() if key != path[0]}
        return {key: without_leaf(item, path[1:]) if key == path[0] else item for key, item in part.items()}
    return [without_leaf(item, path[1:]) if item["name"] == path[0] else item for item in part]


GUARDRAILS = "Namespace NAMESPACE: metadata.annotations.tidegate.dev/guardrails"
# What each value of the reference's overlays changes: kind and name of the objects, and the field.
SAID_BY_THE_OVERLAYS = {
    ("dev", "proxy.replicas"): {"Deployment inference-proxy: spec.replicas"},
    ("dev", "proxy.access.data-scientists-look.actions"): {"ConfigMap inference-proxy-routing: data.access.json"},
    ("prod", "datasets.models.fileSystemId"): {"PersistentVolume NAMESPACE-models: spec.csi.volumeHandle"},
    ("prod", "datasets.models.domino.datasetId"): {
        "StatefulSet ondemand-large: spec.template.spec.containers.triton.volumeMounts.models.subPath",
        "StatefulSet ondemand-large: spec.template.spec.initContainers.eviction-policy.volumeMounts.models.subPath",
        "StatefulSet ondemand-small: spec.template.spec.initContainers.eviction-policy.volumeMounts.models.subPath",
        "StatefulSet ondemand-small: spec.template.spec.containers.triton.volumeMounts.models.subPath",
        "StatefulSet preload-main: spec.template.spec.containers.triton.volumeMounts.models.subPath",
    },
    ("prod", "servers.preload.pools.main.replicas"): {"StatefulSet preload-main: spec.replicas"},
    ("prod", "servers.ondemand.pools.small.replicas"): {"StatefulSet ondemand-small: spec.replicas"},
    ("prod", "proxy.exposure.className"): {"Ingress inference-proxy: spec.ingressClassName"},
    ("prod", "proxy.autoscaling.min"): None,  # required: an overlay without it is refused
    ("prod", "proxy.autoscaling.max"): None,
    ("prod", "proxy.replicas"): None,  # without it, replicas and autoscaling would stand together
    ("prod", "proxy.exposure.host"): None,
    ("prod", "proxy.exposure.kind"): None,
    ("prod", "proxy.tls.kind"): None,
    ("prod", "proxy.tls.issuer"): None,
    ("prod", "network.callers.ingress-controller.namespaceLabels.kubernetes.io/metadata.name"): None,
    ("prod", "datasets.models.writers"): {GUARDRAILS},  # nothing that runs: it is said for rules, and for promotion
    ("prod", "proxy.access.model-endpoints.servers"): {"ConfigMap inference-proxy-routing: data.access.json"},
    ("prod", "proxy.access.data-scientists-look.servers"): {"ConfigMap inference-proxy-routing: data.access.json"},
    ("prod", "proxy.access.production-deployers.groups"): None,
    ("prod", "proxy.access.production-deployers.servers"): {"ConfigMap inference-proxy-routing: data.access.json"},
    ("prod", "guardrails.gpuSlices"): {GUARDRAILS},
    ("prod", "guardrails.severities.images-are-pinned-by-digest"): {GUARDRAILS},
    ("prod", "rollout.canary"): set(),  # how it is rolled out is no object of it
    ("prod", "promotion.from"): None,  # soakHours are counted there
    ("prod", "promotion.groups"): set(),  # who promotes what is told to clients
    ("prod", "promotion.separationOfDuties"): set(),
    ("prod", "promotion.soakHours"): set(),
    ("prod", "gate.settleSeconds"): set(),
    ("prod", "gate.probe.kind"): None,
    ("prod", "gate.probe.path"): set(),
    ("prod", "gate.alerts.kind"): None,
    ("prod", "gate.alerts.service.namespace"): set(),
    ("prod", "gate.alerts.service.name"): None,
    ("prod", "gate.alerts.service.port"): None,
    ("prod", "gate.alerts.ignore"): set(),
    ("prod", "proxy.exposure.annotations.nginx.ingress.kubernetes.io/backend-protocol"): {
        "Ingress inference-proxy: metadata.annotations"
    },
}


def test_the_table_above_names_every_value_of_the_reference_s_overlays() -> None:
    tree = reference_tree()
    found = {
        (name, ".".join(leaf))
        for name in ("dev", "prod")
        for leaf in leaves({k: v for k, v in environment(tree, name).items() if k not in IDENTITY})
    }
    assert found == set(SAID_BY_THE_OVERLAYS)


@pytest.mark.parametrize(("name", "leaf"), [key for key, said in SAID_BY_THE_OVERLAYS.items() if said is not None])
def test_each_value_of_an_overlay_changes_what_it_says_and_nothing_else(name: str, leaf: str) -> None:
    tree = reference_tree()
    item = environment(tree, name)
    (path,) = (found for found in leaves(item) if ".".join(found) == leaf)
    smaller = copy.deepcopy(tree)
    smaller["environments"] = [without_leaf(item, path) if e["name"] == name else e for e in smaller["environments"]]
    if leaf == "datasets.models.writers":
        return_to = {"dev": "production", "prod": "production"}[name]
        smaller["environments"] = [{**e, return_to: False} if e["name"] == name else e for e in smaller["environments"]]
    with_it, without_it = read_tree(tree), read_tree(smaller)
    stack = next(s for s in with_it.stacks if s.environment.name == name)
    found = differences(
        without_identity(objects_of(with_it, stack.name), stack),
        without_identity(objects_of(without_it, stack.name), stack),
    )
    assert {f"{path[0]}: {'.'.join(path[1:])}" for path in found} == SAID_BY_THE_OVERLAYS[name, leaf]


@pytest.mark.parametrize(
    ("repository", "registries", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver", {}, "nvcr.io/nvidia/tritonserver"),
        ("nvcr.io/nvidia/tritonserver", {"nvcr.io": "mirror.example.com/nvcr"},
         "mirror.example.com/nvcr/nvidia/tritonserver"),
        ("nvcr.io/nvidia/tritonserver", {"quay.io": "mirror.example.com"}, "nvcr.io/nvidia/tritonserver"),
        ("library/busybox", {"docker.io": "mirror.example.com/hub"}, "mirror.example.com/hub/library/busybox"),
        ("busybox", {"docker.io": "mirror.example.com"}, "mirror.example.com/busybox"),
        ("busybox", {}, "busybox"),
        ("localhost:5000/a", {"localhost:5000": "mirror.example.com"}, "mirror.example.com/a"),
        ("localhost/a", {"localhost": "mirror.example.com"}, "mirror.example.com/a"),
    ],
)  # fmt: skip
def test_an_image_comes_from_the_mirror_of_its_registry(
    repository: str, registries: dict[str, str], expected: str
) -> None:
    assert Image(name="x", repository=repository, tag="1").mirrored(registries) == expected
