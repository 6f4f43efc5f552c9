"""A pool of Tritons: command line, settings of its eviction policy, times."""

import math
from typing import Any

from tidegate_contracts import eviction, triton

from components import (
    CpuScalingArgs,
    EnvironmentVariableArgs,
    EvictionPolicyArgs,
    QueueScalingArgs,
    SecretArgs,
    TritonPoolArgs,
)

from ..definition.base import CpuScaling, byte_count
from ..definition.datasets import ObjectStoreRepository
from ..definition.images import POLICY_IMAGE
from ..definition.servers import OnDemand, Pool, Preload, QueueScaling, Server, TritonSettings
from ..images_lock import ImagesLock
from ..placement import capacity_bytes, most_replicas
from ..stack import Stack
from . import names
from .containers import PRE_STOP_SECONDS, container_resources, grace_period
from .datasets import repository_volume
from .gpu import gpu_placement
from .namespace import AZURE_USE

STARTUP_PROBE_SECONDS = 10
READY_MARGIN_SECONDS = 300
"""Beyond start-up: scheduling, pulling the image, mounting."""


def triton_pool(stack: Stack, lock: ImagesLock, server: Server, pool: Pool) -> TritonPoolArgs:
    """Return the arguments of one pool."""
    name = names.pool_name(server, pool)
    selector = names.pool_selector(stack, server, pool)
    settings = server.triton
    grace = grace_period(settings.exit_timeout_seconds)
    return TritonPoolArgs(
        name=name,
        headless_name=names.headless_name(server, pool),
        namespace=stack.namespace,
        labels={**names.labels(stack, server.kind), **selector},
        selector=selector,
        pod_labels={**names.labels(stack, server.kind), **selector, **_pod_labels(stack, server, pool)},
        service_account=names.service_account(server),
        image=names.image_reference(stack, lock, server.image),
        arguments=_arguments(server, pool),
        environment=[
            EnvironmentVariableArgs(name=key, value=value) for key, value in sorted(_environment(server).items())
        ],
        placement=gpu_placement(pool, name),
        priority_class=pool.priority_class,
        replicas=pool.fixed_replicas,
        cpu_scaling=cpu_scaling(pool.autoscaling) if isinstance(pool.autoscaling, CpuScaling) else None,
        queue_scaling=_queue_scaling(stack, server, pool, pool.autoscaling),
        max_unavailable=pool.max_unavailable,
        shared_memory=pool.shared_memory,
        scratch=pool.scratch,
        repository_volume=repository_volume(stack, server),
        grpc_tls=SecretArgs(secret=settings.grpc_tls.secret) if settings.grpc_tls else None,
        eviction_policy=_eviction_policy(stack, lock, server, pool),
        startup_failures=math.ceil(pool.startup_seconds / STARTUP_PROBE_SECONDS),
        pre_stop=PRE_STOP_SECONDS,
        grace_period=grace,
        ready_timeout=f"{pool.startup_seconds + READY_MARGIN_SECONDS}s",
        # An update goes from pod to pod.
        update_timeout=f"{most_replicas(pool) * (grace + pool.startup_seconds) + READY_MARGIN_SECONDS}s",
    )


def cpu_scaling(scaling: CpuScaling) -> CpuScalingArgs:
    """Return the bounds of an autoscaler by CPU use."""
    return CpuScalingArgs(min=scaling.min, max=scaling.max, cpu_percent=scaling.cpu_percent)


def _queue_scaling(stack: Stack, server: Server, pool: Pool, scaling: Any) -> QueueScalingArgs | None:
    if not isinstance(scaling, QueueScaling):
        return None
    pods = f'namespace="{stack.namespace}",pod=~"{names.pool_name(server, pool)}-[0-9]+"'
    return QueueScalingArgs(
        min=scaling.min,
        max=scaling.max,
        prometheus_address=scaling.prometheus_address,
        # Mean time in the queue of a request of the last two minutes, in milliseconds.
        query=f"sum(rate(nv_inference_queue_duration_us{{{pods}}}[2m])) / 1000"
        f" / clamp_min(sum(rate(nv_inference_request_success{{{pods}}}[2m])), 0.001)",
        threshold=str(scaling.queue_milliseconds),
    )


def _pod_labels(stack: Stack, server: Server, pool: Pool) -> dict[str, str]:
    labels = {names.ROLE: "server", names.LOADING: pool.loading.mode}
    if server.identity is not None and server.identity.cloud == "azure":
        labels |= AZURE_USE
    if stack.platform.domino is not None and stack.platform.domino.mesh is not None:
        labels |= {"sidecar.istio.io/inject": "false"}
    return labels


def _environment(server: Server) -> dict[str, str]:
    """Return the environment of the Triton container; the root file system is read-only, so home is elsewhere."""
    azure = server.identity is not None and server.identity.cloud == "azure"
    # Triton reads Azure with an account key unless it is told to use the pod's identity.
    identity = {"AZURE_STORAGE_AUTH_TYPE": "default"} if azure else {}
    return {"HOME": "/tmp", **identity, **server.triton.environment}


def _repository_root(server: Server) -> str:
    repository = server.repository
    return repository.url if isinstance(repository, ObjectStoreRepository) else triton.REPOSITORY_ROOT


def _arguments(server: Server, pool: Pool) -> list[str]:
    """Return tritonserver's arguments; its documentation is `tritonserver --help`."""
    settings = server.triton
    arguments = [f"--model-repository={_repository_root(server)}"]
    match pool.loading:
        case Preload():
            arguments += ["--model-control-mode=poll", f"--repository-poll-secs={pool.loading.poll_seconds}"]
        case OnDemand():
            arguments += ["--model-control-mode=explicit"]
    arguments += [
        # One model that fails to load must not take the others down.
        "--exit-on-error=false",
        f"--strict-readiness={str(settings.strict_readiness).lower()}",
        f"--exit-timeout-secs={settings.exit_timeout_seconds}",
        f"--model-load-thread-count={settings.model_load_threads}",
        f"--http-port={triton.HTTP_PORT}",
        f"--grpc-port={triton.GRPC_PORT}",
        f"--metrics-port={triton.METRICS_PORT}",
        f"--metrics-interval-ms={settings.metrics.interval_milliseconds}",
        f"--log-verbose={settings.log_verbose}",
        f"--log-format={settings.log_format}",
    ]
    return [*arguments, *_optional_arguments(settings), *settings.extra_arguments]


def _optional_arguments(settings: TritonSettings) -> list[str]:
    arguments = []
    if settings.metrics.latency_summaries:
        quantiles = ",".join(f"{one.quantile}:{one.error}" for one in settings.metrics.latency_summaries)
        arguments += ["--metrics-config=summary_latencies=true", f"--metrics-config=summary_quantiles={quantiles}"]
    if settings.rate_limiter is not None:
        arguments.append("--rate-limit=execution_count")
        arguments += [f"--rate-limit-resource={name}:{n}" for name, n in settings.rate_limiter.resources.items()]
    if settings.grpc_tls is not None:
        arguments += [
            "--grpc-use-ssl=true",
            f"--grpc-server-cert={triton.TLS_ROOT}/tls.crt",
            f"--grpc-server-key={triton.TLS_ROOT}/tls.key",
        ]
    return arguments


def _eviction_policy(stack: Stack, lock: ImagesLock, server: Server, pool: Pool) -> EvictionPolicyArgs | None:
    loading = pool.loading
    capacity = capacity_bytes(pool)
    if not isinstance(loading, OnDemand) or capacity is None:
        return None
    settings = eviction.EvictionSettings(
        policy=loading.policy,
        repository=_repository_root(server),
        grpc_tls=server.triton.grpc_tls is not None,
        capacity_bytes=capacity,
        idle_seconds=loading.idle_seconds,
        lease_seconds=loading.lease_seconds,
        wait_seconds=loading.wait_seconds,
        models=tuple(
            eviction.ManagedModel(
                name=model.name,
                idle_seconds=model.idle_seconds,
                pinned=model.pinned,
                footprint_bytes=byte_count(model.footprint) if model.footprint else None,
                versions=tuple(share.version for share in model.versions if share.weight),
                alias=model.alias,
            )
            for model in stack.models_of(server, pool)
        ),
        warm_windows=tuple(
            eviction.WarmWindow(
                name=window.name,
                opens=window.opens,
                duration_seconds=window.duration_seconds,
                time_zone=window.time_zone,
                models=window.models,
            )
            for window in loading.warm_windows
        ),
    )
    return EvictionPolicyArgs(
        image=names.image_reference(stack, lock, POLICY_IMAGE),
        resources=container_resources(pool.policy_resources),
        settings_name=f"{names.pool_name(server, pool)}-eviction",
        settings=settings.model_dump(mode="json", by_alias=True, exclude_none=True),
    )
