"""What a kubelet and kube-proxy make of an update: a roll that loses no call, and files that follow their ConfigMap."""

import pytest

from .callers import calls, lost, served
from .environment import NAMESPACE, PATIENCE, PROXIES, Environment, Log, container_status, until


def test_a_new_version_of_the_proxy_is_rolled_out_without_losing_a_call(environment: Environment) -> None:
    with environment.alone("ondemand-small-0", PROXIES):
        old = {pod["metadata"]["name"] for pod in environment.pods("inference-proxy")}
        with calls(environment, "digits") as log:
            until(lambda: served(log)[1] == old, PATIENCE, "calls that both proxies answer")
            objects = environment.objects(
                "{name: proxy, repository: localhost/proxy, tag: test}",
                "{name: proxy, repository: localhost/proxy, tag: next}",
            )
            # Nothing else has changed, and another test may be scaling a pool.
            environment.apply([item for item in objects if item["kind"] == "Deployment"])
            environment.wait_until_ready(PROXIES)
            until(lambda: all_gone(environment, old), PATIENCE, "the old proxies to be gone")
            new = {pod["metadata"]["name"] for pod in environment.pods("inference-proxy")}
            until(lambda: served(log)[1] >= old | new, PATIENCE, "calls that the new proxies answer")
            before = served(log)[0]
            until(lambda: served(log)[0] > before + 100, PATIENCE, "more calls")
        images = {pod["spec"]["containers"][0]["image"] for pod in environment.pods("inference-proxy")}
        assert images == {"localhost/proxy:next"}
        assert len(new) == len(old) == 2
        assert not new & old
        assert lost(log) == []


@pytest.mark.thorough
def test_a_new_version_of_a_pool_is_rolled_out_one_replica_after_the_other_without_losing_a_call(
    environment: Environment,
) -> None:
    """A replica goes only when the other one is ready, and it leaves the names long before it ends."""
    names = ("preload-main-0", "preload-main-1")
    with environment.alone(*names, PROXIES):
        old = {name: environment.pod(name)["metadata"]["uid"] for name in names}
        with calls(environment, "churn") as log:
            until(lambda: served(log)[0] > 100, PATIENCE, "calls that are answered")
            objects = environment.objects(
                "{name: triton, repository: localhost/triton, tag: test}",
                "{name: triton, repository: localhost/triton, tag: next}",
            )
            (pool,) = [
                item for item in objects if (item["kind"], item["metadata"]["name"]) == ("StatefulSet", "preload-main")
            ]
            environment.apply([pool])
            environment.wait_until_ready("statefulset/preload-main")
            before = served(log)[0]
            until(lambda: served(log)[0] > before + 100, PATIENCE, "more calls")
        for name in names:
            pod = environment.pod(name)
            assert pod["metadata"]["uid"] != old[name]
            assert pod["spec"]["containers"][0]["image"] == "localhost/triton:next"
        assert lost(log) == []


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
            until(lambda: all(last_models(log) == ["digits", "churn-two"] for log in logs), PATIENCE, "the new table")
        finally:
            routing()
        until(lambda: all(last_models(log) == ["digits", "churn"] for log in logs), PATIENCE, "the old table")
        for pod in pods:
            now = environment.pod(pod["metadata"]["name"])
            assert container_status(now, "proxy") == container_status(pod, "proxy"), "no proxy was started again"


def last_models(log: Log) -> list[str]:
    models: list[str] = [event for event in log.events() if event.name == "routing"][-1].details["models"]
    return models
