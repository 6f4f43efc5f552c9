"""Another kind of server becomes objects, in Pulumi and in the chart: an entry in `KINDS` is all it takes."""

import json
from pathlib import Path

import pytest
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.routing import RoutingTable

from charts import values_of
from charts.folder import contents, write
from components.evaluate import KubernetesObject
from stacks.resolve import resolve
from tests.charts.rendering import declared, object_differences, rendered, without_policy

from .stack import toys_are_known, with_toys
from .toy.components import GRPC_PORT, HTTP_PORT, METRICS_PORT


@pytest.fixture(scope="module")
def objects() -> list[KubernetesObject]:
    with toys_are_known():
        definition = with_toys()
        return declared(resolve(definition.stacks[0], definition.lock))


def one(objects: list[KubernetesObject], kind: str, name: str) -> KubernetesObject:
    (found,) = (item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return found


def test_the_kind_declares_its_own_pools_and_other_kinds_theirs(objects: list[KubernetesObject]) -> None:
    names = {item["metadata"]["name"]: item for item in objects if item["kind"] == "StatefulSet"}
    assert names.keys() == {"preload-main", "ondemand-main", "toys-main", "toys-cold"}
    containers = names["toys-cold"]["spec"]["template"]["spec"]
    assert containers["containers"][0]["args"] == ["--greeting", "hello!"]
    assert [each["name"] for each in containers["initContainers"]] == ["eviction-policy"]
    assert "initContainers" not in names["toys-main"]["spec"]["template"]["spec"]
    assert one(objects, "ServiceAccount", "toy-toys")


def test_proxies_and_policies_are_told_of_the_kind(objects: list[KubernetesObject]) -> None:
    text = one(objects, "ConfigMap", "inference-proxy-routing")["data"]["routing.json"]
    server = next(each for each in RoutingTable.model_validate_json(text).servers if each.name == "toys")
    assert server.kind == "toy"
    assert {(pool.http_port, pool.grpc_port) for pool in server.pools} == {(HTTP_PORT, GRPC_PORT)}
    (text,) = one(objects, "ConfigMap", "toys-cold-eviction")["data"].values()
    settings = EvictionSettings.model_validate_json(text)
    assert (settings.kind, settings.repository) == ("toy", "/toys")


def test_the_boundary_opens_the_ports_of_every_kind(objects: list[KubernetesObject]) -> None:
    text = json.dumps(one(objects, "NetworkPolicy", "servers-from-proxy"))
    assert all(f'"port": {port}' in text for port in (HTTP_PORT, GRPC_PORT, 8000, 8001))
    assert f'"port": {METRICS_PORT}' in json.dumps(one(objects, "NetworkPolicy", "metrics-of-servers"))


def test_helm_renders_servers_of_both_kinds_as_the_components_declare_them(tmp_path: Path) -> None:
    """The chart that is generated where the kind is known, with the values of a definition that has it."""
    with toys_are_known():
        write(contents(), tmp_path)
        definition = with_toys(toy={"greeting": 'say "hello"'})
        args = resolve(definition.stacks[0], definition.lock)
        wanted, values = declared(args), values_of(args)
        assert object_differences(wanted, without_policy(rendered(values, chart=tmp_path))) == []
