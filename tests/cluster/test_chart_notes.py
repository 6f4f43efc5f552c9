"""The chart's notes on a real API server: what is missing is found out, and no longer said once it is there."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from charts import CHART
from lab import tools
from lab.local_cluster import LocalCluster, crds, nodes

from .conftest import MakeCluster
from .world import somebody

VALUES = CHART / "ci" / "prod-east-values.yaml"
NAMESPACE = "inference-prod"
RELEASE: list[str | Path] = ["east", CHART, "--namespace", NAMESPACE, "--values", VALUES]
NEW: list[str | Path] = ["install", *RELEASE, "--create-namespace", "--take-ownership"]


@pytest.fixture
def bare(make_cluster: MakeCluster) -> LocalCluster:
    """A cluster with one node without GPU, and nothing of what the chart's environment needs but its kinds."""
    cluster = make_cluster([nodes.cpu_node("cpu-1")])
    rendered = helm({}, "template", "x", CHART, "--values", VALUES).stdout
    crds.install(cluster, [item for item in yaml.safe_load_all(rendered) if item])
    return cluster


def helm(environment: Mapping[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [tools.path("helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=120)


def notes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_what_is_missing_is_said_until_it_is_there(bare: LocalCluster) -> None:
    first = notes(helm(bare.environment(), *NEW))
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
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "efs.csi.aws.com"}}
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "nginx"}}
    bare.apply([{**driver, "spec": {"attachRequired": False}}, {**ingress, "spec": {"controller": "example.com/none"}}])
    bare.add_nodes([nodes.mig_mixed("gpu-1", "NVIDIA-A100-SXM4-80GB", 4, {"1g.10gb": 2, "2g.20gb": 1})])
    second = notes(helm(bare.environment(), "upgrade", *RELEASE))
    for there in ("registry-credentials", "efs.csi.aws.com,", "IngressClass", "mig-1g.10gb", "mig-2g.20gb"):
        assert there not in second.partition("What is still missing")[2]
    assert "offers nvidia.com/mig-3g.40gb" in second


@pytest.mark.thorough
def test_who_may_not_look_around_installs_without_asking(bare: LocalCluster) -> None:
    kinds = "namespaces,persistentvolumes,persistentvolumeclaims,configmaps,secrets,services,serviceaccounts"
    all_of = ("apps,policy,autoscaling,networking.k8s.io,monitoring.coreos.com", "*", "*")
    user = somebody(bare, "deployer", all_of, ("cert-manager.io", "certificates", "*"), ("", kinds, "*"))
    deployer = {"KUBECONFIG": str(user)}
    refused = helm(deployer, *NEW, "--dry-run=server")
    assert refused.returncode != 0
    assert 'User "deployer" cannot get resource "csidrivers"' in refused.stderr
    said = notes(helm(deployer, *NEW, "--set", "global.lookup=false"))
    assert "no cluster was asked" in said
    assert "offers nvidia.com/mig-1g.10gb" in said
