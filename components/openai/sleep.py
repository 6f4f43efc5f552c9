"""Models of vLLM that share a slice, and sleep by turns.

A device plugin allots a device to one container; others of the pod see it only where the runtime obeys
NVIDIA_VISIBLE_DEVICES, which names no slice that is not known before, and no device that is accounted for. So one
container has the device, and runs a process for each model; the eviction policy beside it needs none.
"""

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, openai

from stacks.definition.openai import VllmSettings

from .. import pods, server_pool
from ..args import PoolContext, repository_root
from ..eviction import settings_map
from ..gpu_placement import GpuPlacement
from ..values import in_bytes, joined, of_kind, when
from .engines import of_one, vllm_arguments
from .relay import HOME
from .server import OpenaiServerArgs


def sleepers(pool: PoolContext, server: OpenaiServerArgs, placement: GpuPlacement) -> k8s.core.v1.ContainerArgs:
    """Return the container that has the slice, in which the policy has processes started.

    It answers for all of them; whether a model answers, the policy looks.
    """
    args = pool.args
    return pods.container(
        "engine",
        server.image,
        pool.every_pod,
        {"http": openai.HTTP_PORT},
        joined(pods.variables(HOME), server_pool.said_variables(server.openai)),
        command=["python3", eviction_process.ENGINES_PROGRAM],
        # Every address, this port, and the seconds that processes may take to end.
        args=["", f"{openai.HTTP_PORT}", f"{server.openai.exit_timeout_seconds}"],
        resources=placement.resources(args.resources, args.scratch),
        startup_probe=pods.http_probe("/health", "http", 1, failures=60),
        readiness_probe=pods.http_probe("/health", "http", 5, failures=3),
        liveness_probe=pods.http_probe("/health", "http", 10, failures=6, timeout_seconds=10),
        lifecycle=pods.pre_stop(),
        volume_mounts=joined(
            server_pool.mounts(server, openai.REPOSITORY_ROOT), [pods.mount("control", eviction_process.CONTROL_ROOT)]
        ),
    )


def sleep_settings(
    name: str, pool: PoolContext, server: OpenaiServerArgs, child: pulumi.ResourceOptions
) -> k8s.core.v1.ConfigMap | None:
    """Declare the settings of the eviction policy where the pool loads on demand."""
    return of_kind(
        server.openai,
        VllmSettings,
        lambda it: settings_map(
            name,
            pool,
            child,
            repository=repository_root(server, openai.REPOSITORY_ROOT, lambda root: root),
            grpc_tls=False,
            kind=server.kind,
            sleep=when(
                it.sleep,
                lambda sleep: {
                    "hostMemoryBytes": in_bytes(sleep.host_memory),
                    "keptBytes": in_bytes(sleep.kept),
                    "startSeconds": pool.args.startup_seconds,
                },
            ),
            command=lambda model: of_one(
                model, server, it, lambda served: joined(["vllm", "serve"], vllm_arguments(it, served))
            ),
        ),
    )
