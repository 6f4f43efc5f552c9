"""What a kubelet and kube-proxy make of an update: a roll that loses no call, and files that follow their ConfigMap."""

from collections.abc import Iterator
from contextlib import contextmanager

from .environment import NAMESPACE, PROXIES, Environment, Log, container_status, until

URL = f"http://inference-proxy.{NAMESPACE}.svc/v2/models/digits/infer"


@contextmanager
def calls(environment: Environment) -> Iterator[Log]:
    """Call a model through the proxy's Service, a hundred times a second, from a pod of another namespace."""
    node = environment.machine
    overrides = '{"spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5}}'
    node.kubectl(
        *("run", "caller", "--image=localhost/caller:test", "--restart=Never", f"--overrides={overrides}"),
        *("--command", "--", "caller", URL),
    )
    try:
        node.kubectl("wait", "--for=condition=Ready", "pod/caller", "--timeout=30s")
        yield environment.log(node.get("pod", "caller"), "caller")
    finally:
        node.kubectl("delete", "pod", "caller", "--now")


def served(log: Log) -> tuple[int, set[str]]:
    """Return how many calls were answered until now, and by which proxies."""
    last = [event.details for event in log.events() if event.name == "answered"][-1:]
    return (last[0]["number"], set(last[0]["by"])) if last else (0, set())


def test_a_new_version_of_the_proxy_is_rolled_out_without_losing_a_call(environment: Environment) -> None:
    with environment.alone("ondemand-small-0", PROXIES):
        old = {pod["metadata"]["name"] for pod in environment.pods("inference-proxy")}
        with calls(environment) as log:
            until(lambda: served(log)[1] == old, 30, "calls that both proxies answer")
            objects = environment.objects(
                "{name: proxy, repository: localhost/proxy, tag: test}",
                "{name: proxy, repository: localhost/proxy, tag: next}",
            )
            # Nothing else has changed, and another test may be scaling a pool.
            environment.apply([item for item in objects if item["kind"] == "Deployment"])
            environment.wait_until_ready(PROXIES)
            until(lambda: all_gone(environment, old), 60, "the old proxies to be gone")
            new = {pod["metadata"]["name"] for pod in environment.pods("inference-proxy")}
            until(lambda: served(log)[1] >= old | new, 30, "calls that the new proxies answer")
            before = served(log)[0]
            until(lambda: served(log)[0] > before + 100, 30, "more calls")
        images = {pod["spec"]["containers"][0]["image"] for pod in environment.pods("inference-proxy")}
        assert images == {"localhost/proxy:next"}
        assert len(new) == len(old) == 2
        assert not new & old
        lost = [event for event in log.events() if event.name == "lost"]
        assert not lost, f"{len(lost)} of {served(log)[0] + len(lost)} calls were lost, such as {lost[0]}"


def all_gone(environment: Environment, names: set[str]) -> bool:
    pods = environment.machine.get("pods", f"--namespace={NAMESPACE}")["items"]
    return not names & {pod["metadata"]["name"] for pod in pods}


def test_a_changed_routing_table_reaches_the_running_proxies(environment: Environment) -> None:
    """The kubelet of these tests looks every five seconds, others every minute."""
    with environment.alone(PROXIES):
        pods = environment.pods("inference-proxy")
        logs = [environment.log(pod, "proxy") for pod in pods]
        for log in logs:
            assert log.wait("routing").details["models"] == ["digits", "churn"]

        def routing(old: str = "", new: str = "") -> None:
            (table,) = [
                item
                for item in environment.objects(old, new)
                if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", "inference-proxy-routing")
            ]
            assert "serverside-applied" in environment.apply([table])

        routing("{name: churn, server", "{name: churn-two, server")
        try:
            until(lambda: all(last_models(log) == ["digits", "churn-two"] for log in logs), 20, "the new table")
        finally:
            routing()
        until(lambda: all(last_models(log) == ["digits", "churn"] for log in logs), 20, "the old table")
        for pod in pods:
            now = environment.pod(pod["metadata"]["name"])
            assert container_status(now, "proxy") == container_status(pod, "proxy"), "no proxy was started again"


def last_models(log: Log) -> list[str]:
    models: list[str] = [event for event in log.events() if event.name == "routing"][-1].details["models"]
    return models
