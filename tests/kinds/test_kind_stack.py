"""Another kind of server in a definition, resolved and as objects: an entry in each room's `KINDS` is all it takes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidegate_contracts.routing import RoutingTable

from charts import values_of
from charts.folder import contents, write
from components.args import GRACE_SECONDS
from components.evaluate import KubernetesObject
from stacks.definition.triton import TritonServer
from stacks.problems import DefinitionError
from stacks.resolve import resolve
from stacks.resolve.servers import READY_MARGIN_SECONDS
from tests.charts.rendering import declared, object_differences, rendered

from .stack import toys_are_known, with_toys
from .toy.components import GRPC_PORT, HTTP_PORT, METRICS_PORT
from .toy.stacks import EXIT_SECONDS, ToyServer, ToyServerArgs


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    with toys_are_known():
        yield


@pytest.fixture(scope="module")
def objects(known: None) -> dict[tuple[str, str], KubernetesObject]:  # noqa: ARG001
    definition = with_toys()
    made = declared(resolve(definition.stacks[0], definition.lock))
    return {(item["kind"], item["metadata"]["name"]): item for item in made}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"toy": {"greeting": 3}}, "servers[toys].toy.greeting: expected text, got the number 3"),
        ({"triton": {}}, 'unknown key "triton"\n    it belongs to kind: triton, and kind is toy here. Keys'),
        ({"kind": "vllm"}, 'servers[toys].kind: unknown kind "vllm"\n    kind is one of: triton, toy'),
    ],
)
def test_a_server_has_the_keys_of_its_own_kind_and_no_others(more: dict[str, object], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        with_toys(**more)
    (problem,) = refused.value.problems
    assert said in str(problem)


def test_a_server_is_of_the_class_of_its_kind_and_becomes_the_arguments_of_its_kind() -> None:
    definition = with_toys(toy={"greeting": "good day"})
    servers = definition.stacks[0].platform.servers
    assert [type(server) for server in servers] == [TritonServer, TritonServer, ToyServer]
    server = resolve(definition.stacks[0], definition.lock).servers[-1]
    assert isinstance(server, ToyServerArgs)
    assert (server.kind, server.toy.greeting, server.image) == ("toy", "good day", "registry.example.com/toy:1.0")
    (more,) = (pool for pool in server.pools if pool.name == "more")
    assert [model.name for model in more.models] == ["greeter"]
    assert more.pulumi_timeouts is not None
    longest = GRACE_SECONDS + EXIT_SECONDS + more.startup_seconds
    assert more.pulumi_timeouts.updated == longest + READY_MARGIN_SECONDS


def test_the_kind_declares_its_own_pools_and_other_kinds_theirs(
    objects: dict[tuple[str, str], KubernetesObject],
) -> None:
    pods = {name: item["spec"]["template"]["spec"] for (kind, name), item in objects.items() if kind == "StatefulSet"}
    assert pods.keys() == {"preload-main", "ondemand-main", "toys-main", "toys-more"}
    assert pods["toys-more"]["containers"][0]["args"] == ["--greeting", "hello!"]
    assert ("ServiceAccount", "toy-toys") in objects


def test_proxies_and_the_boundary_are_told_of_the_kind(
    objects: dict[tuple[str, str], KubernetesObject],
) -> None:
    text = objects["ConfigMap", "inference-proxy-routing"]["data"]["routing.json"]
    (server,) = (each for each in RoutingTable.model_validate_json(text).servers if each.name == "toys")
    assert server.kind == "toy"
    assert {(pool.http_port, pool.grpc_port) for pool in server.pools} == {(HTTP_PORT, GRPC_PORT)}
    text = json.dumps(objects["NetworkPolicy", "servers-from-proxy"])
    assert all(f'"port": {port}' in text for port in (HTTP_PORT, GRPC_PORT, 8000, 8001))
    assert f'"port": {METRICS_PORT}' in json.dumps(objects["NetworkPolicy", "metrics-of-servers"])


def test_helm_renders_servers_of_both_kinds_as_the_components_declare_them(tmp_path: Path) -> None:
    """The chart that is generated where the kind is known, with the values of a definition that has it."""
    write(contents(), tmp_path)
    definition = with_toys(toy={"greeting": 'say "hello"'})
    args = resolve(definition.stacks[0], definition.lock)
    assert object_differences(declared(args), rendered(values_of(args), chart=tmp_path)) == []
