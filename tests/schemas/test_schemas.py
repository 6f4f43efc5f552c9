"""The schemas must catch what a strict API server would refuse, and let everything else pass."""

import copy
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests import schemas
from tests.schemas import builtin, custom

CONTAINER = {
    "name": "proxy",
    "image": "example/proxy:1",
    "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
    "resources": {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/mig-1g.10gb": 1}},
}
POD = {"metadata": {"labels": {"app": "proxy"}}, "spec": {"containers": [CONTAINER]}}
ROUTE = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "proxy", "port": 80}]}
RULE = {"alert": "A", "expr": 1, "for": "5m", "labels": {"any": "x"}}
TRIGGER = {"type": "prometheus", "metadata": {"anything": "goes"}}
# Specs as Tidegate renders them, by API and kind, and paths of misspelt fields.
OBJECTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("apps/v1 Deployment", {"selector": {"matchLabels": {"app": "proxy"}}, "template": POD},
     ("spec.replica", "spec.template.spec.containers.0.readinessProbe.httpGet.prot")),
    ("gateway.networking.k8s.io/v1 HTTPRoute", {"parentRefs": [{"name": "public"}], "rules": [ROUTE]},
     ("spec.rules.0.backendRefs.0.prot",)),
    ("monitoring.coreos.com/v1 PodMonitor",
     {"selector": {"matchLabels": {"app": "triton"}}, "podMetricsEndpoints": [{"port": "metrics"}]},
     ("spec.podMetricsEndpoints.0.intervall",)),
    ("monitoring.coreos.com/v1 PrometheusRule", {"groups": [{"name": "g", "rules": [RULE]}]},
     ("spec.groups.0.rules.0.anotations",)),
    ("cert-manager.io/v1 Certificate", {"secretName": "tls", "issuerRef": {"name": "ca"}}, ("spec.dnsName",)),
    ("keda.sh/v1alpha1 ScaledObject", {"scaleTargetRef": {"name": "proxy"}, "triggers": [TRIGGER]},
     ("spec.maxReplicasCount",)),
    ("security.istio.io/v1 PeerAuthentication", {"mtls": {"mode": "STRICT"}}, ("spec.mtls.mod",)),
]  # fmt: skip


def made(kind: str, **more: Any) -> dict[str, Any]:
    """An object with a name."""
    api, _, name = kind.partition(" ")
    return {"apiVersion": api, "kind": name, "metadata": {"name": "it", "namespace": "dev"}, **more}


def misspelt(obj: dict[str, Any], path: str) -> dict[str, Any]:
    """A copy of an object with a field more, at a path such as 'spec.rules.0.nmae'."""
    *steps, last = path.split(".")
    changed = copy.deepcopy(obj)
    node: Any = changed
    for step in steps:
        node = node[int(step) if step.isdigit() else step]
    node[last] = "x"
    return changed


def test_correct_objects_pass() -> None:
    assert schemas.check([made(kind, spec=spec) for kind, spec, _ in OBJECTS]) == []


def test_a_misspelt_field_is_caught_at_any_depth() -> None:
    """And in the metadata, which every CRD leaves to Kubernetes; all of them at once."""
    cases = [(made(kind, spec=spec), path) for kind, spec, paths in OBJECTS for path in (*paths, "metadata.lables")]
    violations = schemas.check([misspelt(*case) for case in cases])
    assert len(violations) == len(cases)
    for (_, path), violation in zip(cases, violations, strict=True):
        assert path.split(".")[-1] in violation


@pytest.mark.parametrize("kind", ["example.com/v1 Foo", "apps/v1beta1 Deployment"])
def test_a_kind_without_a_schema_is_a_violation(kind: str) -> None:
    """Silence would look like approval."""
    assert len(schemas.check([made(kind, spec=OBJECTS[0][1])])) == 1


@pytest.mark.thorough
def test_every_schema_can_be_used_and_none_points_at_the_web() -> None:
    """A pattern that is not understood, or a reference that cannot be followed, would show up late."""
    objects = []
    for file in sorted(custom.folder().rglob("*.json")):
        assert "$ref" not in file.read_text("utf-8")
        known = json.loads(file.read_text("utf-8"))["properties"]
        objects.append(made(f"{known['apiVersion']['const']} {known['kind']['const']}"))
    assert len(objects) > 50
    # Empty as they are, they may lack required fields; nothing else can be wrong with them.
    assert all("missing propert" in line for line in schemas.check(objects))
    for file in builtin.folder().glob("*.json"):
        assert not any(word in file.read_text("utf-8") for word in ('"$id"', '"$ref": "/', '"$ref": "http'))


OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
EITHER = {"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}


@pytest.mark.parametrize(
    ("openapi", "right", "wrong"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "x"}, {"b": "x"}),
        ({"type": "object"}, {}, {"b": "x"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"b": "x"}, {"b": 1}),
        ({"type": "object", "additionalProperties": True}, {"b": "x"}, []),
        (OPEN, {"b": {"c": 1}}, "x"),
        ({**OPEN, "properties": {"a": {"type": "object", "properties": {}}}}, {"a": {}, "b": 1}, {"a": {"b": 1}}),
        ({"type": "array", "items": {"type": "object", "properties": {"a": {}}}}, [{"a": 1}], [{"b": 1}]),
        ({"x-kubernetes-int-or-string": True, "pattern": "^[0-9]+$"}, 5, "x"),
        ({"type": "string", "nullable": True, "enum": ["a"]}, None, "b"),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, 1, 0),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": False}, 9, 10),
        (EITHER, {"a": "x"}, {"a": "x", "b": "x"}),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, {"kind": "K", "metadata": {}}, 1),
    ],
)
def test_a_crds_schema_is_closed_where_the_api_server_closes_it(openapi: custom.Schema, right: Any, wrong: Any) -> None:
    """Every way in which a CRD's schema differs from JSON schema, by one example that passes and one that does not."""
    validator = Draft202012Validator(custom.strict(openapi))
    assert validator.is_valid(right)
    assert not validator.is_valid(wrong)
