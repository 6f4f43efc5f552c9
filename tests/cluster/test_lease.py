"""The Lease of a run: whose it is decides who may give it up."""

import pytest

from local_cluster import LocalCluster
from rollout.engines import lease
from rollout.errors import RolloutError
from rollout.kubectl import Kubectl


@pytest.fixture
def kube(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return Kubectl(cluster.context)


def test_a_lease_that_another_run_took_over_is_left_to_it(kube: Kubectl, namespace: str) -> None:
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace):
        theirs = '{"spec": {"holderIdentity": "somebody else"}}'
        kube.run("patch", "lease", lease.NAME, "-n", namespace, "--type=merge", "--patch", theirs)
    assert kube.get("lease", lease.NAME, namespace) is not None


def test_a_lease_of_ones_own_is_given_up(kube: Kubectl, namespace: str) -> None:
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace):
        assert kube.get("lease", lease.NAME, namespace) is not None
    assert kube.get("lease", lease.NAME, namespace) is None


def test_without_its_namespace_there_is_an_error_and_no_waiting(kube: Kubectl, namespace: str) -> None:
    with pytest.raises(RolloutError, match=namespace), lease.held(kube, namespace):
        pass
