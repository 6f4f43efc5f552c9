from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tidegate_contracts.environments import DatasetLocation, Environments, ObjectStoreLocation, Plane, Promotion
from tidegate_contracts.routing import RoutingTable

from components import Environment
from components.evaluate import evaluate
from components.naming import Naming
from components.proxy_files import routing_table
from stacks import clients
from stacks.definition.base import byte_count
from stacks.resolve import resolve
from stacks.validate import read_definition
from tests.cases import GONE
from tests.counts import examples
from tests.stacks.definition.examples import edited_at, valid
from tests.strategies import definition_trees, read_tree
from tests.strategies.platform import Tree

ROOT = Path(__file__).parents[2]
PROFILE = 10 * 10**9
INGRESS = {"kind": "ingress", "host": "inference.example.com", "path": "/gpu"}
ROUTE = {"kind": "http-route", "host": "i.example.com", "gateway": "g", "gatewayNamespace": "n"}
SECRET = {"kind": "secret", "secret": "tls"}
S3 = {"kind": "csi", "driver": "s3.csi.aws.com", "volumeHandle": "any"}


def environments_of(edits: dict[str, Any] | None = None) -> Environments:
    return clients.environments(valid(edited_at(edits or {})))


def plane(of: Environments, environment: str, name: str) -> Plane:
    (found,) = (item for item in of.environments if item.name == environment)
    return next(item for item in found.planes if item.name == name)


ALONE = {"environments/dev": GONE, "dataPlanes/lab": GONE, "environments/prod/datasets": GONE}
"""prod alone, with the datasets of the common part."""


def location(edits: dict[str, Any], environment: str = "prod", name: str = "east") -> DatasetLocation:
    found = plane(environments_of(edits), environment, name).servers[0].location
    assert isinstance(found, DatasetLocation)
    return found


def test_the_reference_definition_lists_who_promotes_which_model_to_production() -> None:
    dev, prod = clients.environments(read_definition(ROOT / "stacks/inference.yaml")).environments
    assert (dev.name, dev.production, dev.promotion) == ("dev", False, Promotion())
    assert (prod.name, prod.production) == ("prod", True)
    assert prod.promotion == Promotion(
        source="dev", groups=("production-deployers",), separation_of_duties=True, soak_hours=24
    )
    assert [(item.name, item.wave, item.proxy_url) for item in prod.planes] == [
        ("east", 1, "https://inference.example.com"),
        ("west", 2, "https://inference-west.example.com"),
    ]
    east, west = (item.servers[0] for item in prod.planes)
    assert east.writers == west.writers == ("production-deployers",)
    domino = "65f1c0ffee0000000000d002"
    for server, system in ((east, "fs-0a1b2c3d4e5f60002"), (west, "fs-0a1b2c3d4e5f60003")):
        volume = f"efs:{system}/filecache/{domino}"
        assert server.location == DatasetLocation(
            dataset="models", path="models/pre-load", domino_dataset_id=domino, volume=volume
        )


def test_pools_list_the_memory_that_a_model_must_fit() -> None:
    cpu = {"kind": "cpu"}
    warm, cold = plane(environments_of({"servers/main/pools/warm/placement": cpu}), "dev", "lab").servers[0].pools
    assert (warm.name, warm.loading, warm.gpu, warm.poll_seconds) == ("warm", "preload", False, 30)
    assert warm.capacity_bytes is None
    assert warm.memory_bytes == byte_count("8Gi") - byte_count("1Gi")
    assert (cold.name, cold.loading, cold.gpu, cold.poll_seconds) == ("cold", "on-demand", True, None)
    assert (cold.memory_bytes, cold.capacity_bytes) == (PROFILE, PROFILE * 9 // 10)


def test_the_canary_comes_first_and_then_wave_after_wave() -> None:
    cpu = [{"name": name, "placement": {"kind": "cpu"}} for name in ("warm", "cold")]
    edits = {
        "dataPlanes/east/gpus": GONE,
        "dataPlanes/west": {"environments": ["prod"], "wave": 2},
        "dataPlanes/zulu": {"environments": ["prod"]},
        "environments/prod/servers": [{"name": "main", "pools": cpu}],
        "environments/staging": {},  # it lives nowhere, and is named
    }
    for canary, order in (({}, ["east", "zulu", "west"]), ({"canary": "zulu"}, ["zulu", "east", "west"])):
        dev, prod, staging = environments_of({**edits, "environments/prod/rollout": canary}).environments
        assert [item.name for item in prod.planes] == order
        assert (len(dev.planes), staging.name, staging.planes) == (1, "staging", ())


@pytest.mark.parametrize(
    ("proxy", "address"),
    [
        ({"exposure": INGRESS}, "https://inference.example.com/gpu"),
        ({"exposure": {**INGRESS, "path": "/"}, "tls": SECRET}, "https://inference.example.com"),
        ({"exposure": ROUTE}, "https://i.example.com"),
        ({"exposure": {"kind": "load-balancer"}, "tls": SECRET}, "https://inference-proxy.tidegate-prod.svc:443"),
        ({"exposure": {"kind": "cluster-ip"}}, "http://inference-proxy.tidegate-prod.svc:80"),
    ],
)
def test_the_address_is_that_of_an_ingress_or_gateway_or_else_the_service(proxy: dict[str, Any], address: str) -> None:
    definition = valid(edited_at({f"proxy/{key}": value for key, value in proxy.items()}))
    assert plane(clients.environments(definition), "prod", "east").proxy_url == address
    stack = definition.stacks[1]
    made = evaluate(lambda: Environment("x", resolve(stack, definition.lock)))
    (service,) = (each for each in made if (each["kind"], each["metadata"]["name"]) == ("Service", "inference-proxy"))
    if "svc" in address:
        scheme, _, port = address.split(":")
        assert {"name": scheme, "port": int(port)}.items() <= service["spec"]["ports"][0].items()


@pytest.mark.parametrize(
    ("dataset", "volume"),
    [
        ({"kind": "efs", "fileSystemId": "fs-1"}, "efs:fs-1"),
        ({"kind": "efs", "fileSystemId": "fs-1", "accessPointId": "fsap-2"}, "efs:fs-1:fsap-2"),
        ({"kind": "nfs", "server": "nfs.example.com", "path": "/m"}, "nfs:nfs.example.com:/m"),
        ({"kind": "claim", "claimName": "theirs"}, "claim:east:tidegate-prod/theirs"),
        ({"kind": "nfs", "server": "n", "path": "/m", "domino": {"datasetId": "65f1"}}, "nfs:n:/m/filecache/65f1"),
        ({**S3, "volumeAttributes": {"bucketName": "one"}}, "csi:s3.csi.aws.com:any#"),
        ({**S3, "mountOptions": ["allow-other", "prefix prod/"]}, "/prod"),
    ],
)
def test_a_volume_is_named_by_its_content(dataset: dict[str, Any], volume: str) -> None:
    found = location({**ALONE, "datasets/models": dataset})
    assert volume in found.volume
    assert found.domino_dataset_id == dataset.get("domino", {}).get("datasetId")


def test_a_repository_in_object_storage_has_address_writers_and_backends() -> None:
    repository = {"url": "s3://models/prod", "writers": ["deployers"]}
    edits = {
        "environments/prod/servers": [{"name": "main", "repository": {"dataset": None, **repository}}],
        "network/reach/identity/by": ["proxy", "servers"],
        "images/triton/backends": ["python", "onnxruntime"],
    }
    server = plane(environments_of(edits), "prod", "east").servers[0]
    assert server.location == ObjectStoreLocation(url="s3://models/prod")
    assert (server.writers, server.backends) == (("deployers",), ("python", "onnxruntime"))


@settings(parent=examples(30), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(definition_trees())
def test_clients_read_back_their_file_and_its_models_are_the_proxys(tree: Tree) -> None:
    definition = read_tree(tree)
    environments = Environments.model_validate_json(clients.environments_text(definition))
    assert environments == clients.environments(definition)
    plain = {**tree, "environments": [{**item, "promotion": {}} for item in tree["environments"]]}
    for stack, other in zip(definition.stacks, read_tree(plain).stacks, strict=True):
        resolved = resolve(stack, definition.lock)
        without = resolve(other, definition.lock)
        assert without.model_copy(update={"namespace": resolved.namespace}) == resolved, "promotion is for clients"
        table = RoutingTable.model_validate(
            routing_table(Naming(stack.environment.name, stack.namespace), resolved.servers)
        )
        facts = plane(environments, stack.environment.name, stack.data_plane.name)
        by_proxy: dict[Any, list[Any]] = {}
        for model in table.models:  # which has it once for each of its pools
            by_proxy.setdefault((model.server, model.name), []).append(model)
        assert by_proxy.keys() == {(model.server, model.name) for model in facts.models}
        for each in facts.models:
            parts = by_proxy[each.server, each.name]
            assert each.pool in {part.pool for part in parts}
            assert sorted(each.versions, key=str) == sorted((v for part in parts for v in part.versions), key=str)
            assert {(part.alias, part.footprint_bytes) for part in parts} == {(each.alias, each.footprint_bytes)}


def test_buckets_behind_one_driver_differ_despite_equal_handles() -> None:
    def of(bucket: str, *options: str) -> str:
        attributes = {"bucketName": bucket, "region": "eu"}
        dataset = {"kind": "csi", "driver": "s3.csi.aws.com", "volumeHandle": "any", "volumeAttributes": attributes}
        dataset["mountOptions"] = [*options]
        return location({**ALONE, "datasets/models": dataset}).volume

    assert of("one") == of("one")
    assert of("one") != of("two")
    assert of("one", "prefix dev/") != of("one", "prefix prod/") == of("one", "allow-other", "prefix prod/")
    assert of("one").startswith("csi:s3.csi.aws.com:any")
