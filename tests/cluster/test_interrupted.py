import os
import signal
import subprocess

import pytest

from lab import tools
from rollout.engines import lease
from rollout.kubectl import Kubectl
from stacks.command import CommandError
from tests.processes import until

from .world import HELM, Site, read_until, settled


@pytest.mark.thorough
@HELM
def test_a_release_that_was_left_pending_is_finished_without_restarting_a_pod(site: Site) -> None:
    """A Helm that was killed while it waited leaves such a release."""
    site.up()
    settled(site.cluster, f"{site.prefix}-dev")
    pods = site.state("uid", "pods")
    site.edit('registry.test/eviction-policy, tag: "1"', 'registry.test/eviction-policy, tag: "2"')
    too_much = 'resources: {cpu: "5000", memory: 8Gi}'
    site.edit("replicas: 1}\n      - {name: extra", f"replicas: 1, {too_much}}}\n      - {{name: extra")
    process = site.start("--keep-going")
    read_until(process, "Unschedulable")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert site.release() == "pending-upgrade"
    site.edit(f", {too_much}", "")
    ended = site.up()
    assert "revision 2 of dev-lab was not finished. Continuing" in ended.err
    assert site.release() == "deployed"
    settled(site.cluster, f"{site.prefix}-dev")
    now = site.state("uid", "pods")
    assert {key for key in pods if now.get(key) == pods[key]} == {key for key in pods if "proxy" in key[2]}
    assert site.changes() == []


@pytest.mark.thorough
@HELM
def test_a_release_that_was_left_uninstalling_is_taken_down_first(site: Site) -> None:
    """A Helm that was killed in `tidegate down` leaves such a release, which cannot be upgraded."""
    site.up()
    service = site.objects()["Service", f"{site.prefix}-dev", "small-main"]["metadata"]["uid"]
    # A finalizer keeps one object, and Helm waits for it.
    holding = '{"metadata":{"finalizers":["test.invalid/hold"]}}'
    site.kubectl("patch", "configmap", "inference-proxy-settings", "--type=merge", f"--patch={holding}")
    down = subprocess.Popen(
        [str(tools.path("helm")), "uninstall", "dev-lab", "--wait", "--namespace", f"{site.prefix}-dev"],
        env={**os.environ, **site.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until("the rest is gone", lambda: ("Service", f"{site.prefix}-dev", "small-main") not in site.objects())
    finally:
        down.kill()
        down.wait()
    assert site.release() == "uninstalling"
    free = '{"metadata":{"finalizers":null}}'
    site.kubectl("patch", "configmap", "inference-proxy-settings", "--type=merge", f"--patch={free}")
    ended = site.up()
    assert "dev-lab was not completely uninstalled. Finishing that first …" in ended.err
    assert site.release() == "deployed"
    assert site.objects()["Service", f"{site.prefix}-dev", "small-main"]["metadata"]["uid"] != service
    assert site.changes() == []


# ---- the Lease of a run: only its holder can release it ----

THEIRS = '{"spec": {"holderIdentity": "user@elsewhere, process 7"}}'


def test_a_run_knows_when_another_one_has_taken_its_lease(kube: Kubectl, namespace: str) -> None:
    with lease.acquire_lease(kube, lease.RolloutLease(namespace, renewed_every=0.2)) as hold:
        hold.ensure_held()
        kube.run("patch", "lease", lease.NAME, "-n", namespace, "--type=merge", "--patch", THEIRS)
        until("it is noticed", lambda: hold.lost)
        with pytest.raises(CommandError, match="user@elsewhere, process 7 took over"):
            hold.ensure_held()
    assert kube.get("lease", lease.NAME, namespace) is not None, "it is left to the other run"


def test_without_its_namespace_there_is_an_error_and_no_waiting(kube: Kubectl, namespace: str) -> None:
    hold = lease.RolloutLease(f"{namespace}-gone")
    with pytest.raises(CommandError, match=hold.namespace), lease.acquire_lease(kube, hold):
        pass
