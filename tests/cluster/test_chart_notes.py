"""The chart's notes on a real API server: what is missing is found out, and no longer said once it is there."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from charts import CHART
from lab import tools
from lab.local_cluster import LocalCluster, crds, nodes

from .conftest import MakeCluster

VALUES = CHART / "ci" / "prod-east-values.yaml"
NAMESPACE = "inference-prod"
SECONDS = 120

Helm = Callable[..., str]


@pytest.fixture
def bare(make_cluster: MakeCluster) -> LocalCluster:
    """A cluster with one node without GPU, and nothing of what the chart's environment needs but its kinds."""
    cluster = make_cluster([nodes.cpu_node("cpu-1")])
    rendered = subprocess.run(
        [tools.path("helm"), "template", "x", CHART, "--values", VALUES],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    crds.install(cluster, [item for item in yaml.safe_load_all(rendered.stdout) if item])
    return cluster


def helm(environment: Mapping[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tools.path("helm"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=SECONDS,
    )


def notes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_what_is_missing_is_said_until_it_is_there(bare: LocalCluster) -> None:
    release: list[str | Path] = ["east", CHART, "--namespace", NAMESPACE, "--values", VALUES]
    first = notes(helm(bare.environment(), "install", *release, "--create-namespace", "--take-ownership"))
    assert "What is still missing in this cluster" in first
    for missing in (
        f"Secret {NAMESPACE}/registry-credentials,",
        "CSIDriver efs.csi.aws.com,",
        "ClusterIssuer internal-ca,",
        "IngressClass nginx,",
        "offers nvidia.com/mig-1g.10gb",
        "offers nvidia.com/mig-3g.40gb",
        "a metrics server",
    ):
        assert missing in first
    # The operators' kinds are served, so nothing is said of them.
    assert "the Prometheus operator" not in first
    assert "cert-manager, which" not in first

    bare.kubectl("create", "secret", "generic", "registry-credentials", "--namespace", NAMESPACE)
    bare.apply(
        [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": "efs.csi.aws.com"},
                "spec": {"attachRequired": False},
            },
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "IngressClass",
                "metadata": {"name": "nginx"},
                "spec": {"controller": "example.com/none"},
            },
        ]
    )
    bare.add_nodes([nodes.mig_mixed("gpu-1", "NVIDIA-A100-SXM4-80GB", 4, {"1g.10gb": 2, "2g.20gb": 1})])
    second = notes(helm(bare.environment(), "upgrade", *release))
    for there in ("registry-credentials", "efs.csi.aws.com,", "IngressClass", "mig-1g.10gb", "mig-2g.20gb"):
        assert there not in second.partition("What is still missing")[2]
    assert "offers nvidia.com/mig-3g.40gb" in second


@pytest.mark.thorough
def test_who_may_not_look_around_installs_without_asking(bare: LocalCluster) -> None:
    bare.apply(
        [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "installs"},
                "rules": [
                    {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}
                    for group in ("apps", "policy", "autoscaling", "networking.k8s.io", "monitoring.coreos.com")
                ]
                + [
                    {"apiGroups": ["cert-manager.io"], "resources": ["certificates"], "verbs": ["*"]},
                    {
                        "apiGroups": [""],
                        "resources": [
                            "namespaces",
                            "persistentvolumes",
                            "persistentvolumeclaims",
                            "configmaps",
                            "secrets",
                            "services",
                            "serviceaccounts",
                        ],
                        "verbs": ["*"],
                    },
                ],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "installs"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "installs"},
                "subjects": [{"kind": "User", "name": "deployer", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        ]
    )
    deployer = {"KUBECONFIG": str(bare.user("deployer"))}
    arguments: list[str | Path] = ["install", "east", CHART, "--namespace", NAMESPACE, "--values", VALUES]
    arguments += ["--create-namespace", "--take-ownership"]
    refused = helm(deployer, *arguments, "--dry-run=server")
    assert refused.returncode != 0
    assert 'User "deployer" cannot get resource "csidrivers"' in refused.stderr
    said = notes(helm(deployer, *arguments, "--set", "global.lookup=false"))
    assert "no cluster was asked" in said
    assert "offers nvidia.com/mig-1g.10gb" in said


@pytest.mark.thorough
def test_the_api_server_takes_the_hooks_under_pod_security_restricted(bare: LocalCluster) -> None:
    release: list[str | Path] = ["east", CHART, "--namespace", NAMESPACE, "--values", VALUES]
    notes(helm(bare.environment(), "install", *release, "--create-namespace", "--take-ownership"))
    hooks = helm(bare.environment(), "get", "hooks", "east", "--namespace", NAMESPACE)
    objects = [item for item in yaml.safe_load_all(hooks.stdout) if item]
    assert sorted(item["kind"] for item in objects) == ["NetworkPolicy", "Pod"]
    bare.apply(objects)
    (pod,) = (item for item in bare.get("pods", namespace=NAMESPACE) if item["metadata"]["name"] == "helm-test")
    assert pod["spec"]["containers"][0]["image"].startswith("registry.example.com/tidegate/inference-proxy")
