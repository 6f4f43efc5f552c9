"""Pods that call a model without a pause, and write down what became of each call."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from .environment import PATIENCE, Environment, Log


@contextmanager
def calls(environment: Environment, model: str, *arguments: str, name: str = "caller") -> Iterator[Log]:
    """Call a model through the proxy's Service, a hundred times a second, from a pod of another namespace."""
    node, url = environment.machine, f"http://inference-proxy.{environment.namespace}.svc/v2/models/{model}/infer"
    overrides = json.dumps({"spec": {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5}})
    node.kubectl(
        *("run", name, "--image=localhost/caller:test", "--restart=Never", f"--overrides={overrides}"),
        *("--command", "--", "caller", url, *arguments),
    )
    try:
        ready = ("--for=condition=Ready", f"pod/{name}", f"--timeout={PATIENCE}s")
        node.kubectl("wait", *ready, seconds=PATIENCE + 30)
        yield environment.log(node.get("pod", name), name)
    finally:
        node.kubectl("delete", "pod", name, "--now")


def served(log: Log) -> tuple[int, set[str]]:
    """Return how many calls were answered until now, and by which proxies."""
    last = [event.details for event in log.events() if event.name == "answered"][-1:]
    return (last[0]["number"], set(last[0]["by"])) if last else (0, set())


def lost(log: Log) -> list[str]:
    """Return why calls were lost, at the most ten of them, and how many calls there were."""
    reasons = [f"{event.at} {event.details['why']}" for event in log.events() if event.name == "lost"]
    return [*reasons[:10], f"{len(reasons)} of {served(log)[0] + len(reasons)}"] if reasons else []
