from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tidegate_contracts import eviction_process, triton

from tests.processes import until

from .environment import PATIENCE, Environment, Log, calls, container_status, lost, served

POLICY = f"http://127.0.0.1:{eviction_process.ADMIN_PORT}/stand-in"
TRITON = f"http://127.0.0.1:{triton.HTTP_PORT}/stand-in"


def host(environment: Environment, pool: str) -> str:
    return f"{pool}-headless.{environment.namespace}.svc"


def restarts(environment: Environment, pod: str, container: str) -> int:
    return int(container_status(environment.pod(pod), container)["restartCount"])


def leaves(environment: Environment, address: str, name: str) -> Callable[[], bool]:
    return lambda: address not in environment.addresses()[name]


def crash(environment: Environment, pod: str) -> None:
    """Crash the policy of a pod, and wait until the kubelet has noticed."""
    before = container_status(environment.pod(pod), "eviction-policy").get("lastState")
    environment.post(pod, "triton", f"{POLICY}/crash", check=False)

    def seen() -> bool:
        now = container_status(environment.pod(pod), "eviction-policy")
        return "terminated" in now["state"] or "waiting" in now["state"] or now.get("lastState") != before

    until("the kubelet to see the crash", seen)


def test_a_policy_that_crashes_is_started_again_and_its_triton_goes_on(environment: Environment) -> None:
    """The pod leaves DNS meanwhile, because it is ready only if its native sidecars run, with or without probes."""
    name, names = "ondemand-small-1", host(environment, "ondemand-small")
    pod = environment.pod(name)
    server, policy = container_status(pod, "triton"), container_status(pod, "eviction-policy")
    secret = environment.run(name, "triton", "cat", eviction_process.CONTROL_SECRET_FILE)
    crash(environment, name)
    assert environment.answers(pod)
    again = policy["restartCount"] + 1
    until("a new policy", lambda: restarts(environment, name, "eviction-policy") == again)
    environment.wait_until_ready()
    now = environment.pod(name)
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert container_status(now, "eviction-policy")["lastState"]["terminated"]["exitCode"] == 3
    assert container_status(now, "triton")["containerID"] == server["containerID"], "Triton was not touched"
    # The volume has the lifetime of the pod, so the new policy still has Triton's secret.
    assert environment.run(name, "eviction-policy", "cat", eviction_process.CONTROL_SECRET_FILE) == secret
    assert "secret" not in environment.log(pod, "eviction-policy", again).names()

    address = pod["status"]["podIP"]
    for pause in (10, 20, 40):  # The kubelet's back-off before the second, third and fourth start. One is enough.
        crash(environment, name)
        with suppress(AssertionError):
            until(f"{names} without {address}", leaves(environment, address, names), pause)
            break
    else:
        raise AssertionError(f"{address} was never out of {names}")
    assert environment.answers(pod)
    until(f"{names} with {address} again", lambda: address in environment.addresses()[names])
    assert container_status(environment.pod(name), "triton")["containerID"] == server["containerID"]


@pytest.mark.thorough
def test_a_hung_container_leaves_the_names_and_restarts_after_its_grace_period(
    environment: Environment,
) -> None:
    """A Triton server that neither responds nor exits on SIGTERM, and a policy that does not respond."""
    hung, beside, names = "preload-main-1", "ondemand-small-2", host(environment, "preload-main")
    pod, other = environment.pod(hung), environment.pod(beside)
    address, grace = pod["status"]["podIP"], pod["spec"]["terminationGracePeriodSeconds"]
    count = container_status(pod, "triton")["restartCount"]
    policies = container_status(other, "eviction-policy")["restartCount"]
    server = environment.log(pod, "triton", count)
    environment.post(hung, "triton", f"{TRITON}/ignore-sigterm")
    environment.post(hung, "triton", f"{TRITON}/hang")
    environment.post(beside, "triton", f"{POLICY}/hang")

    # Readiness: three failures, one every five seconds.
    until(f"{names} without {address}", leaves(environment, address, names), 45)
    assert restarts(environment, hung, "triton") == count, "it may recover by itself"

    # Liveness of the policy: three failures, one every ten seconds.
    until("a new policy", lambda: restarts(environment, beside, "eviction-policy") == policies + 1)
    now = environment.pod(beside)
    assert container_status(now, "triton")["containerID"] == container_status(other, "triton")["containerID"]
    assert environment.answers(now)

    # Liveness of Triton: six failures, then the pause, then SIGTERM, then the rest of the grace period.
    until("a new Triton", lambda: restarts(environment, hung, "triton") == count + 1, grace + PATIENCE)
    ended = container_status(environment.pod(hung), "triton")["lastState"]["terminated"]
    assert ended["exitCode"] == 128 + 9, "it had to be killed"
    (first,) = [event for event in server.events() if event.name == "hung"]
    (stopped,) = [event for event in server.events() if event.name == "sigterm"]
    assert "exit" not in server.names()
    # A late probe is only a moment before the next one.
    assert (stopped.at - first.at).total_seconds() > 45 + 10
    until(f"{names} with {address} again", lambda: address in environment.addresses()[names])


def changed(environment: Environment, kind: str, name: str, old: str = "", new: str = "") -> list[dict[str, Any]]:
    objects = environment.objects(old, new)
    return [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]


@pytest.mark.thorough
def test_a_new_version_of_a_pool_rolls_out_replica_by_replica_without_losing_a_call(
    environment: Environment,
) -> None:
    """A replica stops only when the other one is ready, and it leaves DNS long before it exits."""
    names = ("preload-main-0", "preload-main-1")
    old = {name: environment.pod(name)["metadata"]["uid"] for name in names}
    image = "{{name: triton, repository: localhost/triton, tag: {}}}"
    with calls(environment, "churn") as log:
        until("calls that are answered", lambda: served(log)[0] > 100)
        pool = changed(environment, "StatefulSet", "preload-main", image.format("test"), image.format("next"))
        environment.machine.apply(pool)
        environment.wait_until_ready()
        before = served(log)[0]
        until("more calls", lambda: served(log)[0] > before + 100)
    for name in names:
        pod = environment.pod(name)
        assert pod["metadata"]["uid"] != old[name]
        assert pod["spec"]["containers"][0]["image"] == "localhost/triton:next"
    assert lost(log) == []


def test_a_changed_routing_table_reaches_the_running_proxies(environment: Environment) -> None:
    """The kubelet of these tests checks every two seconds. The default is a minute."""
    pods = environment.pods("inference-proxy")
    logs = [environment.log(pod, "proxy") for pod in pods]
    for log in logs:
        assert log.wait("routing").details["models"] == ["digits", "churn"]
    table = ("ConfigMap", "inference-proxy-routing")
    environment.machine.apply(changed(environment, *table, "{name: churn, server", "{name: churn-two, server"))
    try:
        until("the new table", lambda: all(last_models(log) == ["digits", "churn-two"] for log in logs))
    finally:
        environment.machine.apply(changed(environment, *table))
    until("the old table", lambda: all(last_models(log) == ["digits", "churn"] for log in logs))
    for pod in pods:
        now = environment.pod(pod["metadata"]["name"])
        assert container_status(now, "proxy") == container_status(pod, "proxy"), "no proxy was started again"


def last_models(log: Log) -> list[str]:
    models: list[str] = [event for event in log.events() if event.name == "routing"][-1].details["models"]
    return models
