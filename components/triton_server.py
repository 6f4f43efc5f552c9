"""Inference servers, their pools and their models: what is said of each. One Triton process holds one slice."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pulumi

from .fields import (
    ENGINE_ONLY,
    ByteQuantity,
    Bytes,
    Count,
    DnsLabel,
    Image,
    Labels,
    Level,
    ModelName,
    ObjectName,
    ObjectStoreUrl,
    RelativePath,
    Replicas,
    Seconds,
    ServiceLabel,
    Text,
    TritonArgument,
    Variables,
    Weight,
)
from .gpu_placement import PlacementArgs
from .identity import IdentityArgs
from .pods import ResourcesArgs, SecretArgs, TolerationArgs
from .scaling import CpuScalingArgs, QueueScalingArgs


@dataclass(frozen=True, kw_only=True)
class PreloadArgs:
    """Triton loads every model of the repository and follows changes by polling."""

    mode: Literal["preload"] = "preload"
    """All models are in memory."""
    poll_seconds: Seconds
    """Seconds between two looks at the repository."""


@dataclass(frozen=True, kw_only=True)
class WarmWindowArgs:
    """Hours in which models are resident whether anybody calls them or not."""

    name: DnsLabel
    """Its name."""
    opens: Text
    """When the window opens, as a cron expression of five fields."""
    duration_seconds: Seconds
    """How long it stays open."""
    time_zone: Text
    """IANA time zone of the cron expression."""
    models: Sequence[ModelName]
    """Models that are resident meanwhile."""


@dataclass(frozen=True, kw_only=True)
class OnDemandArgs:
    """The eviction policy loads a model when it is called, and makes room for it when it must."""

    mode: Literal["on-demand"] = "on-demand"
    """Models are in memory that are in use."""
    policy: Literal["lru-idle", "lru", "cost-aware"]
    """Which models go first."""
    capacity_bytes: Bytes | None = None
    """Bytes that models may take on each replica; nine tenths of the slice where a MIG profile tells its size."""
    idle_seconds: Seconds
    """A model that was idle for at least this long may be evicted."""
    lease_seconds: Seconds
    """How long a proxy's lease on a model lasts when it is not renewed."""
    wait_seconds: Seconds
    """How long a caller may wait for a load before the answer is "busy, try again"."""
    warm_windows: Sequence[WarmWindowArgs] = ()
    """Scheduled windows in which models are kept resident."""


@dataclass(frozen=True, kw_only=True)
class VersionArgs:
    """A share of a model's traffic for one version."""

    version: Count
    """Version, as its folder in the repository."""
    weight: Weight
    """Share of the requests, in per cent; the shares of a model sum to 100."""


@dataclass(frozen=True, kw_only=True)
class MirrorArgs:
    """A candidate version that gets copies of a share of the requests; its answers are dropped."""

    version: Count
    """Version, as its folder in the repository; one without traffic."""
    percent: Weight
    """Share of the requests that is copied, in per cent."""


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    """One model that clients may call."""

    name: ModelName
    """Its name, which is its folder in the repository."""
    versions: Sequence[VersionArgs] = ()
    """Versions and their shares of the traffic; without versions and alias, the newest."""
    alias: ModelName | None = None
    """Alias in the registry that says which version is served; not together with versions."""
    mirror: MirrorArgs | None = None
    """Candidate version that gets copies of a share of the requests, beside versions; no caller waits for it."""
    idle_seconds: Seconds | None = None
    """Seconds of idleness after which it may be evicted; by default its pool's."""
    pinned: bool = False
    """Loaded at start and never evicted (on-demand pools)."""
    footprint_bytes: Bytes | None = None
    """GPU memory it takes when loaded; measured when not declared."""


@dataclass(frozen=True, kw_only=True)
class EnginePatience:
    """How many seconds Pulumi's engine waits for a pool."""

    ready: int
    """Until it is ready when it is new."""
    updated: int
    """Until an update has gone through all replicas."""

    @property
    def timeouts(self) -> pulumi.CustomTimeouts:
        """The same for the engine."""
        return pulumi.CustomTimeouts(create=f"{self.ready}s", update=f"{self.updated}s")


@dataclass(frozen=True, kw_only=True)
class TritonResourcesArgs(ResourcesArgs):
    """What each Triton asks of its node. The memory limit equals the request, so that nobody is evicted for it."""


@dataclass(frozen=True, kw_only=True)
class PolicyResourcesArgs(ResourcesArgs):
    """What an eviction policy asks of its node. The memory limit equals the request."""


@dataclass(frozen=True, kw_only=True)
class TritonPoolArgs:
    """Replicas of one server on one kind of slice; one Triton process holds one slice."""

    name: DnsLabel
    """Its name; after the server's, the name of its objects."""
    loading: PreloadArgs | OnDemandArgs
    """Which models are in memory: all of them (preload), or those in use (on-demand)."""
    placement: PlacementArgs
    """What each replica runs on; node selector, resource key and tolerations follow from it."""
    replicas: Replicas = 1
    """How many; without effect where an autoscaler owns the number."""
    autoscaling: CpuScalingArgs | QueueScalingArgs | None = None
    """Bounds for an autoscaler, by CPU use or by queue time."""
    resources: TritonResourcesArgs
    """CPU and memory of each Triton."""
    policy_resources: PolicyResourcesArgs
    """CPU and memory of the eviction policy beside it (on-demand pools only)."""
    shared_memory: ByteQuantity
    """Size of /dev/shm, which the Python backend uses; it is part of the memory limit."""
    scratch: ByteQuantity
    """Size of /tmp, where repositories from object storage are copied."""
    node_selector: Labels = field(default_factory=dict)
    """Further labels that nodes must carry."""
    tolerations: Sequence[TolerationArgs] = ()
    """Taints to tolerate beside NVIDIA's own."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    startup_seconds: Seconds
    """How long a Triton may take to start; preloading big models takes long."""
    max_unavailable: Count = 1
    """Replicas that a node drain may take away at once (PodDisruptionBudget)."""
    models: Sequence[ModelArgs] = ()
    """Models that it serves."""
    patience: EnginePatience | None = field(default=None, metadata={ENGINE_ONLY: True})
    """How long Pulumi's engine waits; ten minutes without it."""


@dataclass(frozen=True, kw_only=True)
class VolumeRepositoryArgs:
    """A model repository in a dataset."""

    kind: Literal["volume"] = "volume"
    """It is mounted, read-only."""
    claim: ObjectName
    """Claim of the dataset's volume."""
    sub_path: RelativePath | None = None
    """Folder of the repository below the volume's root; the root itself without one."""


@dataclass(frozen=True, kw_only=True)
class ObjectStoreRepositoryArgs:
    """A model repository straight in object storage; Triton reads it itself."""

    kind: Literal["object-store"] = "object-store"
    """It is read by Triton."""
    url: ObjectStoreUrl
    """Where it is, such as s3://bucket/prefix."""


@dataclass(frozen=True, kw_only=True)
class TritonSettingsArgs:
    """How the Triton process runs."""

    log_verbose: Level
    """Level of verbose logging; 0 is off."""
    log_format: Literal["default", "ISO8601"]
    """Format of log lines."""
    metrics_interval_milliseconds: Count
    """Milliseconds between two readings of GPU and CPU metrics."""
    strict_readiness: bool
    """When true, one model that failed to load takes its whole server out of service."""
    model_load_threads: Count
    """Models that may be loaded at the same time."""
    exit_timeout_seconds: Seconds
    """How long requests in flight may take to end when a replica stops."""
    grpc_tls: SecretArgs | None = None
    """Encrypts gRPC between the proxy and Triton: a secret of type kubernetes.io/tls, with the authority's ca.crt."""
    arguments: Sequence[TritonArgument] = ()
    """Further arguments of tritonserver."""
    environment: Variables = field(default_factory=dict)
    """Environment variables of the Triton container. Never a secret."""


@dataclass(frozen=True, kw_only=True)
class TritonServerArgs:
    """One logical Triton inference server: a model repository and the pools that serve it."""

    name: ServiceLabel
    """Its name, with which the names of its objects begin."""
    kind: Literal["triton"]
    """Kind of the server."""
    image: Image
    """Its image."""
    repository: VolumeRepositoryArgs | ObjectStoreRepositoryArgs
    """Where its models lie: in a dataset, or straight in object storage."""
    identity: IdentityArgs | None = None
    """Cloud identity of its pods, which reads object storage."""
    triton: TritonSettingsArgs
    """Settings of the Triton process."""
    pools: Sequence[TritonPoolArgs]
    """Its pools."""
