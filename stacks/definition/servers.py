"""Inference servers and their pools: what is loaded, where it is placed, how many replicas."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Literal, Self
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError
from pydantic import Field, model_validator

from .base import (
    BOTH_REPLICAS_AND_AUTOSCALING,
    ByteQuantity,
    CpuScaling,
    DnsLabel,
    EnvironmentName,
    Labels,
    Named,
    ObjectName,
    PolicyResources,
    ReplicaBounds,
    Seconds,
    Section,
    ServiceLabel,
    Text,
    Toleration,
    TritonResources,
    Without,
    byte_count,
)
from .datasets import ModelRepository
from .models import ModelName
from .placement import CpuPlacement, Placement


class Preload(Section):
    """Triton loads every model of the repository and follows changes by polling."""

    mode: Literal["preload"]
    poll_seconds: Seconds = 30
    """Seconds between two looks at the repository."""


@cache
def _time_zones() -> frozenset[str]:
    """Every zone of the IANA database; not those that mean something else on each machine."""
    return frozenset(available_timezones() - {"localtime", "Factory", "posixrules"})


class WarmWindow(Named):
    """Hours in which models are resident whether anybody calls them or not, such as for a nightly batch."""

    opens: Text
    """When the window opens, as a cron expression of five fields."""
    duration_seconds: Seconds
    """How long it stays open."""
    time_zone: Text = "UTC"
    """IANA time zone of the cron expression."""
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)]
    """Models that are resident meanwhile."""

    @model_validator(mode="after")
    def _opens_is_a_cron_expression(self) -> Self:
        """Five fields: minute, hour, day of month, month, day of week."""
        try:
            if len(self.opens.split()) != 5:
                raise CronSimError("Wrong number of fields")
            CronSim(self.opens, datetime(2026, 1, 1, tzinfo=UTC))
        except (CronSimError, ValueError, OverflowError) as error:
            raise ValueError(f"opens {self.opens!r} is no cron expression of five fields: {error}") from None
        return self

    @model_validator(mode="after")
    def _time_zone_is_known(self) -> Self:
        """A name of the IANA time zone database."""
        if self.time_zone not in _time_zones():
            raise ValueError(f"timeZone {self.time_zone!r} is no IANA time zone, such as Europe/Berlin")
        return self


class OnDemand(Section):
    """The eviction policy loads a model when it is called, and makes room for it when it must."""

    mode: Literal["on-demand"]
    policy: Literal["lru-idle", "lru", "cost-aware"] = "lru-idle"
    """Which models go first: lru-idle (least recently used of those idle for idleSeconds), lru (least recently used,
    however short its idleness), or cost-aware (weighs bytes, load seconds and use against each other)."""
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """A model that was idle for at least this long may be evicted."""
    capacity: ByteQuantity | None = None
    """Bytes that models may take on each replica. By default nine tenths of the slice's memory; on CPU, of the memory
    without sharedMemory. For shares of a GPU, whose size nothing tells, it must be said."""
    lease_seconds: Annotated[int, Field(ge=2, le=600)] = 15
    """How long a proxy's lease on a model lasts when it is not renewed."""
    wait_seconds: Annotated[int, Field(ge=0, le=600)] = 20
    """How long a caller may wait for a load before the answer is "busy, try again"."""
    warm_windows: tuple[WarmWindow, ...] = ()
    """Scheduled windows in which models are kept resident."""

    @model_validator(mode="after")
    def _idle_is_at_least_the_lease(self) -> Self:
        """Otherwise a model in use would count as idle before its lease ends."""
        if self.idle_seconds < self.lease_seconds and self.policy != "lru":
            raise ValueError(
                f"idleSeconds {self.idle_seconds} is less than leaseSeconds {self.lease_seconds}: a model in use would "
                "count as idle before its lease ends"
            )
        return self


Loading = Annotated[Preload | OnDemand, Field(discriminator="mode")]


class QueueScaling(ReplicaBounds):
    """Replicas follow the time that requests wait in Triton's queues; needs KEDA and Prometheus."""

    kind: Literal["queue"]
    queue_milliseconds: Annotated[int, Field(ge=1, le=600_000)] = 50
    """Mean time in the queue, in milliseconds a request, that the autoscaler aims at."""
    prometheus_address: Annotated[
        str,
        Field(
            pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
            json_schema_extra={"hint": "http://prometheus.monitoring:9090"},
        ),
    ]
    """Address of the Prometheus server that KEDA asks."""


PoolScaling = Annotated[CpuScaling | QueueScaling, Field(discriminator="kind")]


class Pool(Named):
    """Replicas of one server on one kind of slice; one Triton process holds one slice."""

    loading: Loading
    """Which models are in memory: all of them (preload), or those in use (on-demand)."""
    placement: Placement = CpuPlacement(kind="cpu")
    """What each replica runs on."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """How many; 1 when neither this nor autoscaling is said."""
    autoscaling: PoolScaling | None = None
    """Bounds for an autoscaler, by CPU use or by queue time."""
    resources: TritonResources = TritonResources()
    """CPU and memory of each Triton."""
    policy_resources: PolicyResources = PolicyResources()
    """CPU and memory of the eviction policy beside it (on-demand pools only)."""
    shared_memory: ByteQuantity = "1Gi"
    """Size of /dev/shm, which the Python backend uses; it is part of the memory limit."""
    scratch: ByteQuantity = "2Gi"
    """Size of /tmp, where repositories from object storage are copied."""
    node_selector: Labels = Field(default_factory=dict)
    """Further labels that nodes must carry."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints to tolerate beside NVIDIA's own."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    startup_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """How long a Triton may take to start; preloading big models takes long."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1
    """Replicas that a node drain may take away at once (PodDisruptionBudget)."""

    @property
    def fixed_replicas(self) -> int | None:
        """Number of replicas; None where an autoscaler owns it."""
        return None if self.autoscaling else 1 if self.replicas is None else self.replicas

    @model_validator(mode="after")
    def _replicas_or_autoscaling(self) -> Self:
        """An autoscaler owns the number of replicas."""
        if self.replicas is not None and self.autoscaling is not None:
            raise ValueError(BOTH_REPLICAS_AND_AUTOSCALING)
        return self

    @model_validator(mode="after")
    def _shared_memory_is_part_of_the_memory(self) -> Self:
        """What lies in /dev/shm counts against the memory limit."""
        if byte_count(self.shared_memory) >= byte_count(self.resources.memory):
            raise ValueError(
                f"sharedMemory {self.shared_memory} counts against the memory limit, {self.resources.memory}, "
                "and must be less"
            )
        return self


class LatencyQuantile(Section):
    """A quantile of Triton's latency summaries, with the error allowed."""

    quantile: Annotated[float, Field(gt=0, lt=1)]
    """Quantile, such as 0.99."""
    error: Annotated[float, Field(gt=0, lt=1)]
    """Error allowed, such as 0.001."""


class TritonMetrics(Section):
    """What Triton measures."""

    interval_milliseconds: Annotated[int, Field(ge=100, le=60_000)] = 2000
    """Milliseconds between two readings of GPU and CPU metrics."""
    latency_summaries: tuple[LatencyQuantile, ...] = ()
    """Quantiles of request latency to report; none by default."""


ResourceName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_.-]+$", json_schema_extra={"hint": "letters, digits, dots, dashes, underscores"})
]


class RateLimiter(Section):
    """Triton's own rate limiter, which schedules model instances by resources."""

    resources: Annotated[dict[ResourceName, Annotated[int, Field(ge=1, le=2**31 - 1)]], Field(min_length=1)]
    """Resources and how many of each a Triton has."""


class Tls(Section):
    """Certificate from an existing secret."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace; ca.crt in it is what clients trust."""


# Argument of tritonserver → the key that sets it, where one does.
OWNED_ARGUMENTS: Mapping[str, str] = {
    "model-repository": "repository",
    "model-store": "repository",
    "model-control-mode": "loading.mode",
    "repository-poll-secs": "loading.pollSeconds",
    "load-model": "models[].pinned",
    "model-load-thread-count": "triton.modelLoadThreads",
    "exit-on-error": "",
    "exit-timeout-secs": "triton.exitTimeoutSeconds",
    "strict-readiness": "triton.strictReadiness",
    "log-verbose": "triton.logVerbose",
    "log-format": "triton.logFormat",
    "allow-http": "",
    "allow-grpc": "",
    "allow-metrics": "",
    "allow-gpu-metrics": "",
    "allow-cpu-metrics": "",
    "metrics-config": "triton.metrics.latencySummaries",
    "metrics-interval-ms": "triton.metrics.intervalMilliseconds",
    "rate-limit": "triton.rateLimiter",
    "rate-limit-resource": "triton.rateLimiter.resources",
}
# Addresses, ports, TLS, and what restricts the control APIs: the proxy and the policy rely on them.
OWNED_PREFIXES = (
    "http-restricted",
    "grpc-restricted",
    "http-port",
    "http-address",
    "reuse-http-port",
    "grpc-port",
    "grpc-address",
    "reuse-grpc-port",
    "metrics-port",
    "metrics-address",
    "grpc-use-ssl",
    "grpc-server-",
    "grpc-root-cert",
    "allow-sagemaker",
    "allow-vertex-ai",
    "sagemaker-",
    "vertex-ai-",
)

RESOLVED_ARGUMENTS = ("metrics-config", "rate-limit", "rate-limit-resource")
"""Those that latency summaries and the rate limiter become, which components are not told otherwise."""
ExtraArgument = Annotated[
    str,
    Field(
        pattern=r"^--[a-z0-9][a-z0-9-]*(=.*)?$",
        json_schema_extra={"hint": "one argument of tritonserver, such as --pinned-memory-pool-byte-size=268435456"},
    ),
]


class TritonSettings(Section):
    """How the Triton process runs."""

    log_verbose: Annotated[int, Field(ge=0, le=4)] = 0
    """Level of verbose logging; 0 is off."""
    log_format: Literal["default", "ISO8601"] = "ISO8601"
    """Format of log lines."""
    metrics: TritonMetrics = TritonMetrics()
    """Metrics settings."""
    strict_readiness: bool = False
    """When true, one model that failed to load takes its whole server out of service."""
    rate_limiter: RateLimiter | None = None
    """Turns on Triton's rate limiter."""
    model_load_threads: Annotated[int, Field(ge=1, le=64)] = 4
    """Models that may be loaded at the same time."""
    exit_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long requests in flight may take to end when a replica stops."""
    grpc_tls: Tls | None = None
    """Encrypts gRPC between the proxy and Triton. (Triton's HTTP endpoint has no TLS.)"""
    extra_arguments: tuple[ExtraArgument, ...] = ()
    """Further arguments of tritonserver; not those that Tidegate sets."""
    environment: Annotated[
        dict[EnvironmentName, str],
        Without("^HOME$", "is a variable that Tidegate sets itself: the root file system is read-only"),
    ] = Field(default_factory=dict)
    """Environment variables of the Triton container. Never a secret."""

    @model_validator(mode="after")
    def _extra_arguments_leave_ours_alone(self) -> Self:
        """Ports, model control, probes and the restricted protocols are relied on elsewhere."""
        for argument in self.extra_arguments:
            option = argument.removeprefix("--").partition("=")[0]
            # Triton reads its arguments with getopt_long, which takes the beginning of a name for the name.
            begun = any(owned.startswith(option) for owned in (*OWNED_ARGUMENTS, *OWNED_PREFIXES))
            if begun or option in OWNED_ARGUMENTS or option.startswith(OWNED_PREFIXES):
                raise ValueError(
                    f"extraArguments may not set --{option}: Tidegate sets it itself"
                    + (f", from {OWNED_ARGUMENTS[option]}" if OWNED_ARGUMENTS.get(option) else "")
                )
        return self


class AwsIdentity(Section):
    """An AWS role (IRSA)."""

    cloud: Literal["aws"]
    role_arn: Annotated[
        str,
        Field(
            pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$",
            json_schema_extra={"hint": "arn:aws:iam::123456789012:role/name"},
        ),
    ]
    """ARN of the role that reads the repository."""


class GcpIdentity(Section):
    """A Google service account (GKE Workload Identity)."""

    cloud: Literal["gcp"]
    service_account: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$",
            json_schema_extra={"hint": "name@project.iam.gserviceaccount.com"},
        ),
    ]
    """E-mail of the service account that reads the repository."""


class AzureIdentity(Section):
    """An Azure managed identity (Azure Workload Identity)."""

    cloud: Literal["azure"]
    client_id: Annotated[
        str,
        Field(
            pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
            json_schema_extra={"hint": "the client id, a UUID"},
        ),
    ]
    """Client id of the identity that reads the repository."""


Identity = Annotated[AwsIdentity | GcpIdentity | AzureIdentity, Field(discriminator="cloud")]


class TritonServer(Named):
    """One logical Triton inference server: a model repository and the pools that serve it."""

    name: ServiceLabel
    """Its name, with which the names of its Services begin."""
    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    image: DnsLabel = "triton"
    """Its image, by its name under images."""
    repository: ModelRepository
    """Where its models lie: in a dataset, or straight in object storage."""
    identity: Identity | None = None
    """Cloud identity of its pods, which reads object storage."""
    triton: TritonSettings = TritonSettings()
    """Settings of the Triton process."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Its pools."""

    @model_validator(mode="after")
    def _strict_readiness_is_for_preloaded_models(self) -> Self:
        """Every load would take a replica out of service, since Triton is not ready while a model is loading."""
        if self.triton.strict_readiness and any(isinstance(pool.loading, OnDemand) for pool in self.pools):
            raise ValueError(
                "triton.strictReadiness and an on-demand pool cannot stand together: Triton is not ready while any "
                "model is loading, so every load would take its replica out of service"
            )
        return self

    @model_validator(mode="after")
    def _environment_leaves_the_identity_alone(self) -> Self:
        """With an identity of Azure, Triton is told to use it."""
        if isinstance(self.identity, AzureIdentity) and "AZURE_STORAGE_AUTH_TYPE" in self.triton.environment:
            raise ValueError("triton.environment may not set AZURE_STORAGE_AUTH_TYPE beside an identity of Azure")
        return self


Server = TritonServer
"""A server of any kind: a union over `kind` as soon as there is a second one."""
