"""Pools: the models in memory, the placement and the number of replicas."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from .base import (
    HTTP_URL,
    ByteQuantity,
    Condition,
    Conditional,
    CpuScaling,
    Labels,
    ObjectName,
    PolicyResources,
    Renamable,
    ReplicaBounds,
    Seconds,
    Section,
    ServerResources,
    byte_count,
    form,
    replicas_or_autoscaling,
)
from .placement import CpuPlacement, Placement
from .pods import Toleration
from .policies import PolicyName

_WHICH_CLASS = "staging of kind volume needs a storageClass for the volume of each replica: set it"
_NO_CLASS = "storageClass is only for staging of kind volume: remove it"


class Preload(Section):
    """Every model of the repository is in memory. Triton polls the repository for changes."""

    mode: Literal["preload"]
    poll_seconds: Seconds = 30
    """Polling interval in seconds."""


class Staging(Conditional):
    """A directory of each replica, to which the eviction policy copies a model's files before it loads the model."""

    conditions: ClassVar = (
        Condition("volumes_have_a_class", _WHICH_CLASS, needs=("storageClass",), when={"kind": ("volume",)}),
        Condition("others_have_none", _NO_CLASS, forbids=("storageClass",), when={"kind": ("memory", "disk")}),
    )
    kind: Literal["memory", "disk", "volume"]
    """The node's memory, the node's disk (ephemeral storage), or a volume of the pod (such as NVMe). Kubernetes counts
    each towards the node's resources."""
    size: ByteQuantity
    """Size. A sixteenth is reserved for directories and the file system."""
    storage_class: ObjectName | None = None
    """Storage class of the volume (kind volume)."""


class OnDemand(Section):
    """The eviction policy loads a model when a request needs it, and evicts others if it must."""

    mode: Literal["on-demand"]
    policy: PolicyName = "break-even"
    """Eviction policy (docs/eviction.md): break-even (weighs reloads against callers' waiting), lru-idle (least
    recently used), cost-aware (weighs memory, load time and use), or a custom one."""
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Idle seconds after which the policy may evict a model. With break-even it may be earlier."""
    capacity: ByteQuantity | None = None
    """Memory for models on each replica. Required for shares of a GPU. The default is nine tenths of the slice, or of
    memory without sharedMemory."""
    lease_seconds: Annotated[int, Field(ge=2, le=600)] = 15
    """Seconds until a proxy's lease on a model expires, unless the proxy renews it."""
    wait_seconds: Annotated[int, Field(ge=0, le=600)] = 20
    """Seconds that a caller waits for a load before the response is `busy`."""
    staging: Staging | None = None
    """Copies of files near the GPU: an evicted model loads again from there instead of its repository. Never used if
    the repository is a hostPath."""

    @model_validator(mode="after")
    def _idle_is_at_least_the_lease(self) -> Self:
        if self.idle_seconds < self.lease_seconds:
            times = f"idleSeconds {self.idle_seconds} is less than leaseSeconds {self.lease_seconds}"
            raise ValueError(f"{times}, so a model in use would count as idle before its lease ends: raise idleSeconds")
        return self


Loading = Annotated[Preload | OnDemand, Field(discriminator="mode")]


class QueueScaling(ReplicaBounds):
    """Scales by the load of callers. Needs KEDA and Prometheus.

    Pools of kind openai use waitingRequests, all others queueMilliseconds and busyPercent.
    """

    kind: Literal["queue"]
    min: Annotated[int, Field(ge=0, le=1000)]
    """Minimum number of replicas. With 0, an on-demand pool has none while no one calls its models."""
    queue_milliseconds: Annotated[int, Field(ge=1, le=600_000)] = 50
    """Target of the mean time in the queue, in milliseconds a request."""
    busy_percent: Annotated[int, Field(ge=1, le=100)] = 5
    """Target of the share of requests refused as `busy` for lack of memory, in per cent."""
    waiting_requests: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Target of the mean number of requests that wait at each engine (kind openai)."""
    step_seconds: Annotated[int, Field(ge=1, le=1800)] = 60
    """Seconds between two changes by one replica: the time that a replica needs to start and take load."""
    down_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Seconds for which fewer replicas must be enough before one is removed."""
    wake_seconds: Annotated[int, Field(ge=1, le=600)] = 45
    """Seconds that a caller waits for the first replica (min: 0) before the response is `busy`. The replica starts
    anyway."""
    prometheus_address: Annotated[str, form(HTTP_URL, "http://prometheus.monitoring:9090")]
    """Address of the Prometheus server that KEDA queries."""


PoolScaling = Annotated[CpuScaling | QueueScaling, Field(discriminator="kind")]


class Pool(Renamable):
    """Replicas of one server on one kind of device. Each replica is one process on one slice."""

    loading: Loading
    """Models in memory: all of them (preload), or those in use (on-demand)."""
    placement: Placement = CpuPlacement(kind="cpu")
    """Device of each replica."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of replicas. The default is 1 without autoscaling."""
    autoscaling: PoolScaling | None = None
    """Autoscaler, by CPU use or by the load of callers."""
    resources: ServerResources = ServerResources()
    """CPU and memory of each replica."""
    policy_resources: PolicyResources = PolicyResources()
    """CPU and memory of the eviction policy (on-demand pools only)."""
    shared_memory: ByteQuantity = "1Gi"
    """Size of /dev/shm, which Python backends use. It is part of the memory limit."""
    scratch: ByteQuantity = "2Gi"
    """Size of /tmp on the node's disk, for the server's log and for models from object storage that are not staged."""
    node_selector: Labels = Field(default_factory=dict)
    """Additional labels of nodes. Replicas always spread over zones and nodes."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods tolerate, in addition to NVIDIA's."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    startup_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """Seconds that a replica may take to start, including the preloading of models."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1
    """Replicas that a node drain may evict at once (PodDisruptionBudget)."""

    _replicas_or_autoscaling = model_validator(mode="after")(replicas_or_autoscaling)

    @model_validator(mode="after")
    def _shared_memory_is_part_of_the_memory(self) -> Self:
        if byte_count(self.shared_memory) >= byte_count(self.resources.memory):
            limit = f"resources.memory {self.resources.memory}"
            raise ValueError(f"sharedMemory {self.shared_memory} counts towards {limit}, so it must be less")
        return self
