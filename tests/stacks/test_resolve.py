"""Resolving is pure: the same definition gives the same environment, and environments differ only in their overlays."""

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components import Environment, EnvironmentArgs
from components.evaluate import KubernetesObject, evaluate
from components.proxy import CONFIG_CHECKSUM
from stacks.definition.images import Image
from stacks.images_lock import ImagesLock
from stacks.load import load
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from tests.cases import GONE
from tests.charts.rendering import object_differences
from tests.counts import examples
from tests.stacks.definition.examples import edit, edited_at, valid
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
        assert {line.partition(":")[0].rpartition(".")[2] for line in object_differences(before, after)} == {"image"}


# ---- dev and prod ----


def without_identity(objects: list[KubernetesObject], stack: Stack) -> Any:
    """The objects with the environment's own name and namespace taken out of their texts."""
    text = json.dumps(objects).replace(stack.namespace, "NAMESPACE")
    for quote in ('"', '\\"'):
        text = text.replace(f"{quote}{stack.environment.name}{quote}", f"{quote}ENVIRONMENT{quote}")
    # The checksums are of settings and tables that have the environment's name.
    return json.loads(re.sub(rf'("(?:{CONFIG_CHECKSUM}|\w+\.json\.sha256)": )"\w+"', r'\1""', text))


def reference_tree() -> Tree:
    return copy.deepcopy(load(REFERENCE).tree)


def test_without_overlays_environments_differ_in_nothing_but_their_names() -> None:
    def alone(name: str) -> Any:
        tree = reference_tree()
        tree["environments"] = [{"name": name, "namespace": f"inference-{name}"}]
        (plane,) = (plane for plane in tree["dataPlanes"] if plane["name"] == "east")
        tree["dataPlanes"] = [{**plane, "environments": [name]}]
        definition = read_tree(tree)
        return without_identity(objects_of(definition, f"{name}-east"), definition.stacks[0])

    assert alone("dev") == alone("prod")


# The changes of each value of the reference's overlays: kind and name of the objects, and the field.
ACCESS = {"ConfigMap inference-proxy-routing.data.access.json"}
GUARDRAILS = {"Namespace NAMESPACE.metadata.annotations.tidegate.dev/guardrails"}
DEFINITION = {"Namespace NAMESPACE.metadata.annotations.tidegate.dev/definition"}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("dev/proxy/replicas", {"Deployment inference-proxy.spec.replicas"}),
        ("dev/proxy/access/data-scientists-look/actions", ACCESS),
        ("prod/datasets/models/fileSystemId", {"PersistentVolume NAMESPACE-models.spec.csi.volumeHandle"}),
        ("prod/servers/preload/pools/main/replicas", {"StatefulSet preload-main.spec.replicas", *DEFINITION}),
        ("prod/proxy/exposure/className", {"Ingress inference-proxy.spec.ingressClassName", *DEFINITION}),
        ("prod/proxy/exposure/annotations", {"Ingress inference-proxy.metadata.annotations", *DEFINITION}),
        ("prod/proxy/access/model-endpoints/servers", ACCESS),
        ("prod/guardrails/severities", GUARDRAILS),
        # Rollout and promotion have no separate objects.
        ("prod/rollout/canary", DEFINITION),
        ("prod/promotion", DEFINITION),
        ("prod/gate", DEFINITION),
    ],
)
def test_each_value_of_an_overlay_changes_only_its_key(path: str, changed: set[str]) -> None:
    tree, smaller = reference_tree(), reference_tree()
    edit(smaller, ["environments", *path.split("/")], GONE)
    name = path.partition("/")[0]
    before, after = (
        without_identity(objects_of(definition, stack.name), stack)
        for definition in (read_tree(tree), read_tree(smaller))
        for stack in definition.stacks
        if stack.name in ("dev-lab", "prod-east") and stack.environment.name == name
    )
    # API version, kind and name, then the path within the object.
    found = {
        re.sub(r"\[\d+\]", "", line.partition(": ")[0]).split(" ", 1)[1] for line in object_differences(before, after)
    }
    assert {each for each in found if not any(each.startswith(one) for one in changed)} == set()
    assert {one for one in changed if not any(each.startswith(one) for each in found)} == set()


@pytest.mark.parametrize(
    ("repository", "registries", "expected"),
    [
        ("nvcr.io/nvidia/tritonserver", {"nvcr.io": "mirror.example.com/nvcr"},
         "mirror.example.com/nvcr/nvidia/tritonserver"),
        ("nvcr.io/nvidia/tritonserver", {"quay.io": "mirror.example.com"}, "nvcr.io/nvidia/tritonserver"),
        ("library/busybox", {"docker.io": "mirror.example.com/hub"}, "mirror.example.com/hub/library/busybox"),
        ("busybox", {"docker.io": "mirror.example.com"}, "mirror.example.com/busybox"),
        ("localhost:5000/a", {"localhost:5000": "mirror.example.com"}, "mirror.example.com/a"),
    ],
)  # fmt: skip
def test_an_image_comes_from_its_registrys_mirror(repository: str, registries: dict[str, str], expected: str) -> None:
    assert Image(name="x", repository=repository, tag="1").mirrored(registries) == expected


PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")


@pytest.mark.parametrize(
    ("cidr", "excluded", "left_out"),
    [
        ("0.0.0.0/0", [], PRIVATE),
        ("0.0.0.0/0", ["10.1.0.0/16", "203.0.113.0/24"], (*PRIVATE, "203.0.113.0/24")),
        ("::/0", [], ("fc00::/7", "fe80::/10")),
        ("fd00::/8", [], ("fd00:ec2::254/128",)),
        ("169.254.0.0/16", [], ("169.254.169.254/32",)),
        # Such addresses need a separate entry.
        ("169.254.169.254/32", [], ()),
        ("10.0.0.0/8", ["10.1.0.0/16"], ("10.1.0.0/16",)),
        ("198.51.100.0/24", [], ()),
    ],
)
def test_a_wide_range_excludes_cluster_networks_and_metadata_addresses(
    cidr: str, excluded: list[str], left_out: tuple[str, ...]
) -> None:
    reach = {"name": "identity", "by": ["proxy"], "cidr": cidr, "except": excluded}
    (stack, _) = valid(edited_at({"network/reach": [reach]})).stacks
    assert resolve(stack, ImagesLock()).network.reach[0].except_ == tuple(sorted(left_out))


def test_a_data_planes_principal_service_replaces_the_platforms_there_only() -> None:
    url = "https://identity.domino-edge.svc/principal"
    definition = valid(
        edited_at(
            {
                "domino": {},
                "proxy/auth/dominoPrincipal": True,
                "network/reach/domino": {"by": ["proxy"], "namespaceLabels": {"team": "domino"}},
                "dataPlanes/east/domino": {"principalUrl": url},
            }
        )
    )
    urls, ways = {}, {}
    for name in ("dev-lab", "prod-east"):
        objects = objects_of(definition, name)
        ways[name] = "domino-platform" in {item["metadata"]["name"] for item in objects}
        variables = [item["data"] for item in objects if item["kind"] == "ConfigMap"]
        (urls[name],) = {data.get("TIDEGATE_PROXY_DOMINO_PRINCIPAL_URL") for data in variables} - {None}
    assert urls == {"dev-lab": "http://nucleus-frontend.domino-platform.svc:80/v4/auth/principal", "prod-east": url}
    assert ways == {"dev-lab": True, "prod-east": False}


def test_only_pods_that_mount_a_volume_of_gcs_fuse_request_its_sidecar() -> None:
    for driver, sidecar in (("gcsfuse.csi.storage.gke.io", "true"), ("s3.csi.aws.com", None)):
        dataset = {"name": "models", "kind": "csi", "driver": driver, "volumeHandle": "models"}
        definition = valid(edited_at({"datasets": [dataset], "environments/prod": GONE, "dataPlanes/east": GONE}))
        pods = {
            item["kind"]: item["spec"]["template"]["metadata"].get("annotations", {})
            for item in objects_of(definition, "dev-lab")
            if item["kind"] in ("StatefulSet", "Deployment")
        }
        assert pods["StatefulSet"].get("gke-gcsfuse/volumes") == sidecar
        assert "gke-gcsfuse/volumes" not in pods["Deployment"]


def test_a_role_of_aws_is_the_service_accounts_or_comes_by_an_association() -> None:
    role = "arn:aws:iam::123456789012:role/models"
    for identity, annotations in (({"roleArn": role}, {"eks.amazonaws.com/role-arn": role}), ({}, None)):
        definition = valid(edited_at({"servers/main/identity": {"cloud": "aws", **identity}}))
        accounts = [item for item in objects_of(definition, "dev-lab") if item["kind"] == "ServiceAccount"]
        (of_server,) = (item for item in accounts if item["metadata"]["name"] != "inference-proxy")
        assert of_server["metadata"].get("annotations") == annotations
