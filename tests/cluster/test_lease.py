"""The Lease of a run: whose it is decides who may give it up."""

import subprocess
import time

import pytest

from lab.local_cluster import LocalCluster
from rollout.engines import lease
from rollout.kubectl import Kubectl, as_list
from stacks.command import CommandError

from .bringing import Site
from .world import until

THEIRS = '{"spec": {"holderIdentity": "somebody@elsewhere, process 7"}}'


@pytest.fixture
def kube(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return Kubectl(cluster.context)


def test_a_lease_that_another_run_took_over_is_left_to_it(kube: Kubectl, namespace: str) -> None:
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace):
        kube.run("patch", "lease", lease.NAME, "-n", namespace, "--type=merge", "--patch", THEIRS)
    assert kube.get("lease", lease.NAME, namespace) is not None


def test_a_run_knows_when_another_one_has_taken_its_lease(
    kube: Kubectl, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_EVERY", 0.2)
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace) as hold:
        hold.require()
        kube.run("patch", "lease", lease.NAME, "-n", namespace, "--type=merge", "--patch", THEIRS)
        until("it is noticed", lambda: hold.lost)
        with pytest.raises(CommandError, match="somebody@elsewhere, process 7 has taken over"):
            hold.require()


@pytest.mark.thorough
def test_a_holder_elsewhere_is_dead_only_after_a_long_silence(
    kube: Kubectl, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id says nothing here."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    kube.run("create", "namespace", namespace)
    body = lease._lease(namespace, None)
    body["spec"]["holderIdentity"] = f"somebody@elsewhere, process {ended.pid}"
    kube.run("create", "-f", "-", stdin=as_list([body]))
    monkeypatch.setattr(lease, "SECONDS", 4)
    started = time.monotonic()
    with lease.held(kube, namespace):
        assert time.monotonic() - started >= 4


@pytest.mark.thorough
def test_a_lease_that_somebody_deleted_is_made_anew(
    kube: Kubectl, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_EVERY", 0.2)
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace) as hold:
        kube.run("delete", "lease", lease.NAME, "-n", namespace)
        until("it is there again", lambda: kube.get("lease", lease.NAME, namespace))
        assert hold.lost == ""


@pytest.mark.thorough
def test_an_up_whose_lease_another_run_took_over_ends_and_leaves_helms_records_alone(helm_site: Site) -> None:
    """The other run goes on from what it finds; what this one's Helm would still note would be written over it."""
    site = helm_site
    site.up()
    site.edit(
        "replicas: 1}\n      - {name: extra",
        'replicas: 1, resources: {cpu: "5000", memory: 8Gi}}\n      - {name: extra',
    )
    process = site.start()
    assert process.stderr
    while "Unschedulable" not in process.stderr.readline():
        assert process.poll() is None
    site.kubectl("patch", "lease", lease.NAME, "--type=merge", "--patch", THEIRS)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    last = [line for line in err.splitlines() if not line.startswith("waiting: ")]
    assert len(last) == 1
    assert last[0].startswith(
        f"stack dev-lab is not up: somebody@elsewhere, process 7 has taken over the work in {site.prefix}-dev, because"
    )
    assert site.release() == "pending-upgrade", "as the other run would find it"
    holder = site.kubectl("get", "lease", lease.NAME, "--output=jsonpath={.spec.holderIdentity}").stdout
    assert holder == "somebody@elsewhere, process 7"


def test_a_lease_of_ones_own_is_given_up(kube: Kubectl, namespace: str) -> None:
    kube.run("create", "namespace", namespace)
    with lease.held(kube, namespace):
        assert kube.get("lease", lease.NAME, namespace) is not None
    assert kube.get("lease", lease.NAME, namespace) is None


def test_without_its_namespace_there_is_an_error_and_no_waiting(kube: Kubectl, namespace: str) -> None:
    with pytest.raises(CommandError, match=namespace), lease.held(kube, namespace):
        pass
