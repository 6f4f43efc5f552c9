"""What a kubelet does when a pod of ours is to go: the pause, the order of the signals, the end of patience."""

from datetime import UTC, datetime

from .environment import NAMESPACE, PATIENCE, Environment, until
from .machine import Machine

PRE_STOP, DRAIN = 10, 1
HOST = f"ondemand-small-headless.{NAMESPACE}.svc"


def gone(node: Machine, uid: str) -> bool:
    pods = node.get("pods", f"--namespace={NAMESPACE}")["items"]
    return uid not in {pod["metadata"]["uid"] for pod in pods}


def test_a_pod_that_goes_leaves_the_names_first_then_triton_drains_and_the_policy_goes_last(
    environment: Environment,
) -> None:
    name = "ondemand-small-0"
    with environment.alone(name):
        pod = environment.pod(name)
        address, grace = pod["status"]["podIP"], pod["spec"]["terminationGracePeriodSeconds"]
        server, policy = environment.log(pod, "triton"), environment.log(pod, "eviction-policy")
        assert address in environment.addresses()[HOST]
        asked = datetime.now(UTC)
        environment.kubectl("delete", "pod", name, "--wait=false")

        until(lambda: address not in environment.addresses()[HOST], PATIENCE, f"{HOST} without {address}")
        left = datetime.now(UTC)
        assert environment.answers(pod), "it serves whom the news has not reached yet"

        told, ended = server.wait("sigterm"), server.wait("exit")
        assert left < told.at, "it was told to go while names still led to it"
        assert PRE_STOP <= (told.at - asked).total_seconds() < grace
        assert (ended.at - told.at).total_seconds() >= DRAIN
        policy_told = policy.wait("sigterm")
        assert (policy_told.at - ended.at).total_seconds() > 0, "the policy leaves after its Triton"
        until(lambda: gone(environment.machine, pod["metadata"]["uid"]), PATIENCE, "the pod to be gone")
        last = policy.events()[-1]
        assert last.name == "exit", "nobody had to kill it"
        assert (last.at - asked).total_seconds() < grace
        environment.wait_until_ready(name)
        assert environment.pod(name)["metadata"]["uid"] != pod["metadata"]["uid"]
