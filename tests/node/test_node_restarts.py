"""What a kubelet does when a container of ours breaks: which one it starts again, and what goes on meanwhile."""

from contextlib import suppress

import pytest
from tidegate_contracts import eviction_process, triton

from .environment import NAMESPACE, PATIENCE, Environment, container_status, until

POLICY = f"http://127.0.0.1:{eviction_process.ADMIN_PORT}/stand-in"
TRITON = f"http://127.0.0.1:{triton.HTTP_PORT}/stand-in"


def restarts(environment: Environment, pod: str, container: str) -> int:
    return int(container_status(environment.pod(pod), container)["restartCount"])


def crash(environment: Environment, pod: str) -> None:
    """Let the policy of a pod crash, and wait until the kubelet has seen it."""
    before = container_status(environment.pod(pod), "eviction-policy").get("lastState")
    environment.post(pod, "triton", f"{POLICY}/crash", check=False)

    def seen() -> bool:
        now = container_status(environment.pod(pod), "eviction-policy")
        return "terminated" in now["state"] or "waiting" in now["state"] or now.get("lastState") != before

    until(seen, PATIENCE, "the kubelet to see the crash")


def test_a_policy_that_crashes_is_started_again_and_its_triton_goes_on(environment: Environment) -> None:
    """But out of the names meanwhile: a pod is ready when its native sidecars run, with readiness probes or without."""
    name, host = "ondemand-small-1", f"ondemand-small-headless.{NAMESPACE}.svc"
    with environment.alone(name):
        pod = environment.pod(name)
        server = container_status(pod, "triton")
        policy = container_status(pod, "eviction-policy")
        secret = environment.run(name, "triton", "cat", eviction_process.CONTROL_SECRET_FILE)
        crash(environment, name)
        assert environment.answers(pod)
        until(
            lambda: restarts(environment, name, "eviction-policy") == policy["restartCount"] + 1,
            PATIENCE,
            "a new policy",
        )
        until(
            lambda: container_status(environment.pod(name), "eviction-policy")["ready"], PATIENCE, "a policy that is up"
        )
        now = environment.pod(name)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert container_status(now, "eviction-policy")["lastState"]["terminated"]["exitCode"] == 3
        assert container_status(now, "triton")["containerID"] == server["containerID"], "Triton was not touched"
        # The volume lives as long as the pod: the new policy still knows what Triton asks for.
        assert environment.run(name, "eviction-policy", "cat", eviction_process.CONTROL_SECRET_FILE) == secret
        log = environment.log(pod, "eviction-policy", policy["restartCount"] + 1)
        assert "secret" not in log.names()

        address = pod["status"]["podIP"]
        for pause in (10, 20, 40):  # for which the kubelet waits the second, third and fourth time: one is long enough
            crash(environment, name)
            with suppress(AssertionError):
                until(lambda: address not in environment.addresses()[host], pause, f"{host} without {address}")
                break
        else:
            raise AssertionError(f"{address} was never out of {host}")
        assert environment.answers(pod)
        until(lambda: address in environment.addresses()[host], PATIENCE, f"{host} with {address} again")
        assert container_status(environment.pod(name), "triton")["containerID"] == server["containerID"]


@pytest.mark.thorough
def test_what_hangs_is_taken_out_of_the_names_and_started_again_after_its_grace_period(
    environment: Environment,
) -> None:
    """A Triton that neither answers nor goes when it is told to, and a policy that does not answer, at once."""
    hung, beside = "preload-main-1", "ondemand-small-2"
    host = f"preload-main-headless.{NAMESPACE}.svc"
    with environment.alone(hung, beside):
        pod, other = environment.pod(hung), environment.pod(beside)
        address, grace = pod["status"]["podIP"], pod["spec"]["terminationGracePeriodSeconds"]
        count = container_status(pod, "triton")["restartCount"]
        policies = container_status(other, "eviction-policy")["restartCount"]
        server = environment.log(pod, "triton", count)
        environment.post(hung, "triton", f"{TRITON}/ignore-sigterm")
        environment.post(hung, "triton", f"{TRITON}/hang")
        environment.post(beside, "triton", f"{POLICY}/hang")

        # Readiness: three failures, one every five seconds.
        until(lambda: address not in environment.addresses()[host], 45, f"{host} without {address}")
        assert restarts(environment, hung, "triton") == count, "it may come back by itself"

        # Liveness of the policy: three failures, one every ten seconds.
        until(lambda: restarts(environment, beside, "eviction-policy") == policies + 1, PATIENCE, "a new policy")
        now = environment.pod(beside)
        assert container_status(now, "triton")["containerID"] == container_status(other, "triton")["containerID"]
        assert environment.answers(now)

        # Liveness of Triton: six failures, then the pause, then SIGTERM, then the rest of the grace period.
        until(lambda: restarts(environment, hung, "triton") == count + 1, grace + PATIENCE, "a new Triton")
        ended = container_status(environment.pod(hung), "triton")["lastState"]["terminated"]
        assert ended["exitCode"] == 128 + 9, "it had to be killed"
        (first,) = [event for event in server.events() if event.name == "hung"]
        (told,) = [event for event in server.events() if event.name == "sigterm"]
        assert "exit" not in server.names()
        # A probe that comes late is no longer than a moment ahead of the next one.
        assert (told.at - first.at).total_seconds() > 45 + 10
        until(lambda: address in environment.addresses()[host], PATIENCE, f"{host} with {address} again")
