"""The relay, a sidecar in the engine's image that exports the engine's metrics."""

from pathlib import Path
from typing import Final

import pulumi_kubernetes as k8s
from tidegate_contracts import openai

from stacks.definition.base import Resources
from stacks.definition.pods import Pods

from .. import pods
from ..args import ServerArgs
from ..gpu_placement import NO_GPU

HOME: Final = {"HOME": "/tmp", "USER": "engine"}
"""The root file system is read-only, so home is /tmp. No image has a name for the user's number."""
PROGRAM: Final = Path(__file__).with_name("relay_program.py").read_text("utf-8")
_RESOURCES, _DISK = Resources(cpu="10m", memory="64Mi"), "64Mi"


def relay(server: ServerArgs, every_pod: Pods, addresses: list[str]) -> k8s.core.v1.ContainerArgs:
    """Return the container that exports an engine's metrics. Prometheus must not reach the port of the API."""
    return pods.container(
        "metrics",
        server.image,
        every_pod,
        {"metrics": openai.METRICS_PORT},
        pods.variables({**HOME, **NO_GPU}),
        command=["python3", "-c", PROGRAM],
        args=[f":{openai.METRICS_PORT}", *addresses],
        restart_policy="Always",
        resources=pods.container_resources(_RESOURCES, _DISK),
        startup_probe=pods.http_probe("/", "metrics", 1, failures=60),
        liveness_probe=pods.http_probe("/", "metrics", 10, failures=6),
    )
