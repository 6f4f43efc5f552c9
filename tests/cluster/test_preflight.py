import json
import shlex
from typing import Any

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import cpu_node, mig_layouts, mig_single
from tests.processes import until

from .conftest import MakeCluster
from .world import HELM, Site, user_with

A100 = "NVIDIA-A100-SXM4-80GB"
GPUS = f"gpus: [{{nodes: 2, product: {A100}, perNode: 8, mig: {{slices: {{1g.10gb: 7}}}}}}]"


def lacks(site: Site, code: int) -> dict[str, Any]:
    where = ("--cluster", site.cluster.context, "--stack", "dev-lab")
    ended = site.run("preflight", *where, "--json", ok=False)
    assert ended.code == code, ended.text
    return {one["what"]: one for one in json.loads(ended.out)["findings"] if one["source"] == "cluster"}


def one_of(found: dict[str, Any], begin: str) -> Any:
    (one,) = [one for what, one in found.items() if what.startswith(begin)]
    return one


@HELM
def test_a_pod_that_can_never_start_stops_an_up_before_the_first_object(site: Site) -> None:
    """A missing class, driver, device and label. The test runs the command of each finding."""
    of_extra = "priorityClass: never-made, nodeSelector: {disk: fast}"
    staging = "staging: {kind: volume, size: 1Gi, storageClass: no-class}"
    site.edit(
        "replicas: 1}\n      - {name: extra",
        "replicas: 1, placement: {kind: mig, profile: 7g.80gb}}\n      - {name: extra",
    )
    site.edit("capacity: 1Gi}, replicas: 1}", f"capacity: 1Gi, {staging}}}, replicas: 1, {of_extra}}}")
    site.edit(
        "{name: spare, kind: nfs, server: nfs.test, path: /spare}",
        "{name: spare, kind: csi, driver: no.csi.test, volumeHandle: x}",
    )
    site.edit(
        "datasets: [{name: models, path: /prod}, {name: spare, path: /prod-spare}]",
        "datasets: [{name: models, path: /prod}]",
    )
    cut = f"gpus: [{{nodes: 1, product: {A100}, perNode: 2, mig: {{slices: {{7g.80gb: 1}}}}}}]"
    site.edit("{name: lab, context", f"{{name: lab, {cut}, context")
    found = lacks(site, code=1)
    hard = {what for what, one in found.items() if one["level"] == "error"}
    assert hard == {
        "PriorityClass never-made does not exist: no pod of small-extra is created",
        "StorageClass no-class does not exist: pods of small-extra wait for it",
        f"CSIDriver no.csi.test does not exist: no pod can mount PersistentVolume {site.prefix}-dev-spare",
        "no node has the labels disk=fast: pods of small-extra wait",
        "the nodes have enough nvidia.com/mig-7g.80gb for 0 of 1 pod: pods of small-main wait",
    }
    assert one_of(found, "no CNI that is known")["level"] == "advisory"
    for one in found.values():
        assert one["do"]
        _, *arguments = shlex.split(one["command"])
        done = site.cluster.kubectl(*arguments, check=False)
        assert done.returncode == 0 or "NotFound" in done.stderr, done.stderr
    ended = site.up(ok=False)
    assert ended.code == 1
    assert "dev-lab would not start in tests. Nothing was changed.\n" in ended.err
    assert all(what in ended.err for what in found)
    assert "--keep-going" in ended.err
    assert site.objects() == {}


@HELM
def test_a_secret_is_awaited_with_its_namespace_and_required_once_that_exists(site: Site) -> None:
    site.edit("auth: {oidc", "auth: {apiKeys: {secret: keys}, oidc")
    secret = f"Secret {site.prefix}-dev/keys does not exist"
    assert one_of(lacks(site, code=0), secret)["level"] == "advisory"
    site.up()
    assert one_of(lacks(site, code=1), secret)["level"] == "error"
    assert secret in site.up(ok=False).err
    site.kubectl("create", "secret", "generic", "keys")
    assert not [what for what in lacks(site, code=0) if what.startswith("Secret")]
    site.up()


@HELM
def test_missing_read_permission_is_reported_and_does_not_stop(site: Site) -> None:
    site.edit("capacity: 1Gi}, replicas: 1}", "capacity: 1Gi}, replicas: 1, nodeSelector: {disk: fast}}")
    nodes = user_with(site.cluster, f"{site.prefix}-nodes", ("", "namespaces,nodes", "get,list"))
    site.environment = {**site.environment, "KUBECONFIG": str(nodes)}
    what = one_of(lacks(site, code=0), "no node has the labels disk=fast")["what"]
    assert what.endswith("unless an autoscaler adds nodes"), "there may be an autoscaler"
    kinds = "namespaces,configmaps"
    user = user_with(site.cluster, f"{site.prefix}-blind", ("", kinds, "get,list"))
    site.environment = {**site.environment, "KUBECONFIG": str(user)}
    found = lacks(site, code=0)
    assert "nodes" in one_of(found, "you lack permission to list ")["what"]


@pytest.mark.thorough
@HELM
def test_an_autoscaler_that_may_add_nodes_makes_a_missing_node_an_advisory(site: Site) -> None:
    site.edit("capacity: 1Gi}, replicas: 1}", "capacity: 1Gi}, replicas: 1, nodeSelector: {disk: fast}}")
    assert one_of(lacks(site, code=1), "no node has the labels disk=fast")["level"] == "error"
    status = ("configmap", "cluster-autoscaler-status", "--namespace", "default")
    site.cluster.kubectl("create", *status)
    try:
        assert one_of(lacks(site, code=0), "no node has the labels disk=fast")["what"].endswith(
            "unless an autoscaler adds nodes"
        )
    finally:
        site.cluster.kubectl("delete", *status)


def agents(cluster: LocalCluster, name: str, *arguments: str) -> None:
    meta = {"name": name, "namespace": "kube-system"}
    pod = {"containers": [{"name": "c", "image": "agent:1", "args": [*arguments]}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.apply([{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}])


@pytest.mark.thorough
@HELM
def test_a_cluster_as_it_is_declared_lacks_nothing(site: Site, make_cluster: MakeCluster) -> None:
    """In a separate cluster, with a known CNI, and nodes with either MIG strategy."""
    nodes = [*(mig_layouts(name, A100, 8, [(8, {"1g.10gb": 7})]) for name in "ab"), cpu_node("cpu")]
    own = make_cluster([*nodes, mig_single("c", "NVIDIA-H100-80GB-HBM3", 2, "3g.40gb", 2)], "whole")
    site.edit("context: tests,", "context: whole,")
    single = "{nodes: 1, product: NVIDIA-H100-80GB-HBM3, perNode: 2, mig: {strategy: single, slices: {3g.40gb: 2}}}"
    site.edit("{name: lab, context", f"{{name: lab, {GPUS[:-1]}, {single}], context")
    site.environment = {**site.environment, "KUBECONFIG": str(own.kubeconfig)}
    site.cluster = own
    agents(own, "aws-node")
    assert one_of(lacks(site, code=0), "no CNI that is known")
    agents(own, "aws-node", "--enable-network-policy=true")
    until("the DaemonSet is there", lambda: lacks(site, code=0) == {})
