"""The prerequisites of a stack's objects. tests/cluster has tests with real clusters."""

from pathlib import Path

from tidegate_contracts import dynamo

from lab.local_cluster.stand_ins import stand_ins
from rollout.needs import needs_of
from rollout.render import render
from stacks.validate import read_definition

from .conftest import made

ROOT = Path(__file__).parents[2]


def pods(kind: str = "Deployment", **spec: object) -> dict[str, object]:
    return made(kind, "w", spec={"template": {"spec": {"containers": [{"name": "c"}], **spec}}})


def test_objects_that_pods_read_are_needed_once_unless_optional() -> None:
    volumes = [
        {"secret": {"secretName": "s"}},
        {"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "ours"}}]}},
        {"persistentVolumeClaim": {"claimName": "models"}},
        {"secret": {"secretName": "maybe", "optional": True}},
    ]
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "of-env", "key": "k"}}}]
    containers = [{"name": "c", "env": env, "envFrom": [{"configMapRef": {"name": "theirs"}}]}]
    found = needs_of([pods(volumes=volumes, containers=containers), made("ConfigMap", "ours")])
    assert [(need.kind, need.namespace, need.name, need.hard) for need in found] == [
        ("Secret", "ns", "s", True),
        ("PersistentVolumeClaim", "ns", "models", True),
        ("ConfigMap", "ns", "theirs", True),
        ("Secret", "ns", "of-env", True),
    ]


def test_a_certificate_brings_its_secret_and_needs_its_issuer() -> None:
    issuer = {"kind": "ClusterIssuer", "name": "ca"}
    certificate = made("Certificate", "tls", spec={"secretName": "tls", "issuerRef": issuer})
    (need,) = needs_of([pods(volumes=[{"secret": {"secretName": "tls"}}]), certificate])
    assert (need.kind, need.namespace, need.name, need.hard) == ("ClusterIssuer", "", "ca", True)


def test_shared_frontends_of_dynamo_need_its_kind_and_no_config_map_that_kubernetes_makes() -> None:
    path = ROOT / "tests" / "definitions" / "two-kinds.yaml"
    definition = read_definition(path)
    objects = render(definition.stacks[0], definition).objects
    (need,) = (need for need in needs_of(objects) if need.kind == "CustomResourceDefinition")
    assert (need.name, need.hard) == (dynamo.CRD, True)
    assert need.without == "workers exit immediately, because they cannot write the objects of Role openai-agents"
    (stand_in,) = (item for item in stand_ins(objects) if item["kind"] == "CustomResourceDefinition")
    assert stand_in["metadata"]["name"] == dynamo.CRD
    assert "kube-root-ca.crt" not in {need.name for need in needs_of(objects)}
    others = [item for item in objects if item["kind"] != "Role"]
    assert "CustomResourceDefinition" not in {need.kind for need in needs_of(others)}


def test_its_findings_are_those_that_stop_an_up() -> None:
    path = ROOT / "tests" / "definitions" / "everything.yaml"
    definition = read_definition(path)
    objects = render(definition.stacks[0], definition).objects
    there = {(item["kind"], item["metadata"]["name"]) for item in stand_ins(objects)}
    hard = {("PriorityClass", "inference"), ("CSIDriver", "blob.csi.azure.com"), ("StorageClass", "nvme")}
    assert hard <= there
    assert ("StorageClass", "efs-static") not in there, "a volume binds without it"
    inside = {(item["kind"], item["metadata"]["namespace"]) for item in stand_ins(objects, in_namespaces=True)}
    assert inside == {("Secret", "inference-prod"), ("ConfigMap", "inference-prod")}
