import copy
from typing import Any

import pytest

from tests import schemas

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
    """Also in the metadata, which every CRD leaves to Kubernetes, and in one run."""
    cases = [(made(kind, spec=spec), path) for kind, spec, paths in OBJECTS for path in (*paths, "metadata.lables")]
    violations = schemas.check([misspelt(*case) for case in cases])
    assert len(violations) == len(cases)
    for (_, path), violation in zip(cases, violations, strict=True):
        assert path.split(".")[-1] in violation


@pytest.mark.parametrize("kind", ["example.com/v1 Foo", "apps/v1beta1 Deployment"])
def test_a_kind_without_a_schema_is_a_violation(kind: str) -> None:
    """Silence would look like approval."""
    assert len(schemas.check([made(kind, spec=OBJECTS[0][1])])) == 1
