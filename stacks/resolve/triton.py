"""Servers of Triton, their pools and their models."""

from typing import assert_never

from components import (
    AwsIdentityArgs,
    AzureIdentityArgs,
    CpuScalingArgs,
    EnginePatience,
    GcpIdentityArgs,
    IdentityArgs,
    MirrorArgs,
    ModelArgs,
    OnDemandArgs,
    PolicyResourcesArgs,
    PreloadArgs,
    QueueScalingArgs,
    SecretArgs,
    TritonPoolArgs,
    TritonResourcesArgs,
    TritonServerArgs,
    TritonSettingsArgs,
    VersionArgs,
    WarmWindowArgs,
)
from components.pods import GRACE_SECONDS

from ..definition.base import CpuScaling, byte_count
from ..definition.models import Model
from ..definition.servers import (
    AwsIdentity,
    AzureIdentity,
    GcpIdentity,
    Identity,
    OnDemand,
    Pool,
    PoolScaling,
    Preload,
    Server,
    TritonSettings,
)
from ..images_lock import ImagesLock
from ..placement import capacity_bytes, most_replicas
from ..stack import Stack
from . import names
from .containers import container_resources, cpu_scaling, tolerations
from .datasets import repository
from .placement import placement

READY_MARGIN_SECONDS = 300
"""Beyond start-up: scheduling, pulling the image, mounting."""


def triton_server(stack: Stack, lock: ImagesLock, server: Server) -> TritonServerArgs:
    """Return the arguments of one server."""
    return TritonServerArgs(
        name=server.name,
        kind=server.kind,
        image=names.image_reference(stack, lock, server.image),
        repository=repository(stack, server),
        identity=_identity(server.identity),
        triton=_settings(server),
        pools=[_pool(stack, server, pool) for pool in server.pools],
    )


def _identity(identity: Identity | None) -> IdentityArgs | None:
    match identity:
        case AwsIdentity():
            return AwsIdentityArgs(role_arn=identity.role_arn)
        case GcpIdentity():
            return GcpIdentityArgs(service_account=identity.service_account)
        case AzureIdentity():
            return AzureIdentityArgs(client_id=identity.client_id)
        case None:
            return None
        case _:
            assert_never(identity)


def _settings(server: Server) -> TritonSettingsArgs:
    settings = server.triton
    return TritonSettingsArgs(
        log_verbose=settings.log_verbose,
        log_format=settings.log_format,
        metrics_interval_milliseconds=settings.metrics.interval_milliseconds,
        strict_readiness=settings.strict_readiness,
        model_load_threads=settings.model_load_threads,
        exit_timeout_seconds=settings.exit_timeout_seconds,
        grpc_tls=SecretArgs(secret=settings.grpc_tls.secret) if settings.grpc_tls else None,
        arguments=[*_optional_arguments(settings), *settings.extra_arguments],
        environment=dict(settings.environment),
    )


def _optional_arguments(settings: TritonSettings) -> list[str]:
    arguments = []
    if settings.metrics.latency_summaries:
        quantiles = ",".join(f"{one.quantile}:{one.error}" for one in settings.metrics.latency_summaries)
        arguments += ["--metrics-config=summary_latencies=true", f"--metrics-config=summary_quantiles={quantiles}"]
    if settings.rate_limiter is not None:
        arguments.append("--rate-limit=execution_count")
        arguments += [f"--rate-limit-resource={name}:{n}" for name, n in settings.rate_limiter.resources.items()]
    return arguments


def _pool(stack: Stack, server: Server, pool: Pool) -> TritonPoolArgs:
    longest = GRACE_SECONDS + server.triton.exit_timeout_seconds + pool.startup_seconds
    return TritonPoolArgs(
        name=pool.name,
        loading=_loading(pool),
        placement=placement(pool.placement),
        replicas=1 if pool.replicas is None else pool.replicas,
        autoscaling=_autoscaling(pool.autoscaling),
        resources=container_resources(TritonResourcesArgs, pool.resources),
        policy_resources=container_resources(PolicyResourcesArgs, pool.policy_resources),
        shared_memory=pool.shared_memory,
        scratch=pool.scratch,
        node_selector=dict(pool.node_selector),
        tolerations=tolerations(pool.tolerations),
        priority_class=pool.priority_class,
        startup_seconds=pool.startup_seconds,
        max_unavailable=pool.max_unavailable,
        models=[_model(model) for model in stack.models_of(server, pool)],
        patience=EnginePatience(
            ready=pool.startup_seconds + READY_MARGIN_SECONDS,
            # An update goes from pod to pod.
            updated=most_replicas(pool) * longest + READY_MARGIN_SECONDS,
        ),
    )


def _loading(pool: Pool) -> PreloadArgs | OnDemandArgs:
    loading = pool.loading
    if isinstance(loading, Preload):
        return PreloadArgs(poll_seconds=loading.poll_seconds)
    # What follows from the slice is left to follow, should anybody change the profile in the chart's values.
    follows = loading.capacity is None and getattr(pool.placement, "profile", None) is not None
    return OnDemandArgs(
        policy=loading.policy,
        capacity_bytes=None if follows else capacity_bytes(pool),
        idle_seconds=loading.idle_seconds,
        lease_seconds=loading.lease_seconds,
        wait_seconds=loading.wait_seconds,
        warm_windows=_warm_windows(loading),
    )


def _warm_windows(loading: OnDemand) -> list[WarmWindowArgs]:
    return [
        WarmWindowArgs(
            name=window.name,
            opens=window.opens,
            duration_seconds=window.duration_seconds,
            time_zone=window.time_zone,
            models=list(window.models),
        )
        for window in loading.warm_windows
    ]


def _autoscaling(scaling: PoolScaling | None) -> CpuScalingArgs | QueueScalingArgs | None:
    if scaling is None:
        return None
    if isinstance(scaling, CpuScaling):
        return cpu_scaling(scaling)
    return QueueScalingArgs(
        min=scaling.min,
        max=scaling.max,
        queue_milliseconds=scaling.queue_milliseconds,
        prometheus_address=scaling.prometheus_address,
    )


def _model(model: Model) -> ModelArgs:
    return ModelArgs(
        name=model.name,
        versions=[VersionArgs(version=share.version, weight=share.weight) for share in model.versions],
        alias=model.alias,
        mirror=MirrorArgs(version=model.mirror.version, percent=model.mirror.percent) if model.mirror else None,
        idle_seconds=model.idle_seconds,
        pinned=model.pinned,
        footprint_bytes=byte_count(model.footprint) if model.footprint else None,
    )
