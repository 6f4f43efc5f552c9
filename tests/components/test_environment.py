"""Every environment of our definitions, and of any valid definition that hypothesis finds, keeps the promises."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pulumi.runtime.mocks import MockMonitor

from components import Environment
from components.evaluate import KubernetesObject, evaluate
from stacks.definition.datasets import ClaimDataset
from stacks.resolve import resolve
from stacks.stack import Definition, Stack
from stacks.validate import read_definition
from tests.counts import examples
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

from . import promises
from .objects import WORKLOADS, name_of, of_kind, selected, template

ROOT = Path(__file__).parents[2]
DEFINITIONS = [ROOT / "stacks/inference.yaml", *sorted((ROOT / "tests/definitions").glob("*.yaml"))]


def declared(definition: Definition, stack: Stack) -> list[KubernetesObject]:
    """Return the objects of a stack. Fail if an input for the engine is null. The SDK drops nulls for mocks, but the
    engine keeps them in its state, and a later update sends them."""
    found: list[str] = []
    register = MockMonitor.RegisterResource

    def checked(monitor: MockMonitor, request: Any) -> Any:
        inputs = request.object.fields.items()
        found.extend(f"{request.name} {place}" for key, value in inputs for place in nulls(value, key))
        return register(monitor, request)  # type: ignore[no-untyped-call]

    with patch.object(MockMonitor, "RegisterResource", checked):
        objects = evaluate(lambda: Environment(stack.name, resolve(stack, definition.lock)))
    assert not found
    return objects


def nulls(value: Any, place: str) -> Iterator[str]:
    kind = value.WhichOneof("kind")
    if kind == "null_value":
        yield place
    elif kind == "struct_value":
        for key, item in value.struct_value.fields.items():
            yield from nulls(item, f"{place}.{key}")
    elif kind == "list_value":
        for item in value.list_value.values:
            yield from nulls(item, f"{place}[]")


def assert_promises(definition: Definition) -> None:
    for stack in definition.stacks:
        objects = declared(definition, stack)
        for promise in promises.ALL:
            promise(objects)
        promises.every_pod_has_the_annotations_and_every_container_the_variables(objects, stack.platform.pods)
        claims = (item.claim_name for item in stack.platform.datasets if isinstance(item, ClaimDataset))
        promises.volumes_name_config_maps_and_claims_that_exist(objects, frozenset(claims))


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_environments_of_our_definitions_keep_every_promise(path: Path) -> None:
    assert_promises(read_definition(path))


@settings(parent=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_any_valid_definition_declares_environments_that_keep_every_promise(tree: Tree) -> None:
    assert_promises(read_tree(tree))


@settings(parent=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees(), st.sampled_from(["PERMISSIVE", "STRICT"]))
def test_a_mesh_without_domino_brings_nothing_of_dominos(tree: Tree, mtls: str) -> None:
    """No policy for Domino's namespaces, and no labels of Domino's clients."""
    tree.pop("domino", None)
    tree["proxy"]["auth"].pop("dominoPrincipal", None)
    tree["mesh"] = {"mode": "istio", "mtls": mtls, "namespace": "mesh-system"}
    definition = read_tree(tree)
    for stack in definition.stacks:
        objects = declared(definition, stack)
        for item in objects:
            item["metadata"].pop("annotations", None)  # They list datasets, including Domino's.
            assert not re.search("domino|nucleus|keycloak-client", json.dumps(item)), name_of(item)
        (policy,) = (item for item in of_kind(objects, "NetworkPolicy") if "mesh-system" in json.dumps(item))
        assert [name_of(item) for item in selected(objects, policy["spec"]["podSelector"])] == [
            "Deployment inference-proxy"
        ]
        assert policy["spec"]["policyTypes"] == ["Egress"]
        (peers,) = of_kind(objects, "PeerAuthentication")
        assert peers["spec"]["mtls"]["mode"] == mtls
        for workload in of_kind(objects, *WORKLOADS):
            inside = template(workload)["metadata"]["labels"]["sidecar.istio.io/inject"]
            assert inside == ("true" if workload["metadata"]["name"] == "inference-proxy" else "false")
