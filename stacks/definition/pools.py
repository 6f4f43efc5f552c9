"""Pools: the models in memory, the placement and the number of replicas."""

from typing import Annotated, ClassVar, Final, Literal, Self

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
    """Every model of the repository is in memory. Triton polls for changes."""

    mode: Literal["preload"]
    poll_seconds: Seconds = 30
    """Seconds between polls."""


class Staging(Conditional):
    """A directory of each replica, to which the eviction policy copies a model's files before it loads the model."""

    conditions: ClassVar = (
        Condition("volumes_have_a_class", _WHICH_CLASS, needs=("storageClass",), when={"kind": ("volume",)}),
        Condition("others_have_none", _NO_CLASS, forbids=("storageClass",), when={"kind": ("memory", "disk")}),
    )
    kind: Literal["memory", "disk", "volume"]
    """The node's memory, its disk (ephemeral storage), or a volume of the pod. Each counts towards the node's
    resources."""
    size: ByteQuantity
    """Size. A sixteenth is reserved for directories."""
    storage_class: ObjectName | None = None
    """Storage class of kind volume."""


class OnDemand(Section):
    """The eviction policy loads models for requests, and evicts idle ones."""

    mode: Literal["on-demand"]
    policy: PolicyName = "break-even"
    """Eviction policy (docs/eviction.md): break-even, lru-idle, cost-aware, or a custom one."""
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Idle seconds after which the policy may evict a model. Break-even may be earlier."""
    capacity: ByteQuantity | None = None
    """Memory for models on each replica. The default is nine tenths of the slice, or of memory without sharedMemory.
    Required for shares of a GPU."""
    lease_seconds: Annotated[int, Field(ge=2, le=600)] = 15
    """Seconds until a proxy's lease on a model expires."""
    wait_seconds: Annotated[int, Field(ge=0, le=600)] = 20
    """Seconds that a caller waits for a load before it gets `busy`."""
    staging: Staging | None = None
    """Copies of files near the GPU, from which evicted models load again. Never of a hostPath."""

    @model_validator(mode="after")
    def _idle_is_at_least_the_lease(self) -> Self:
        if self.idle_seconds < self.lease_seconds:
            times = f"idleSeconds {self.idle_seconds} is less than leaseSeconds {self.lease_seconds}"
            raise ValueError(f"{times}, so a model in use would count as idle before its lease ends: raise idleSeconds")
        return self


Loading = Annotated[Preload | OnDemand, Field(discriminator="mode")]


class QueueScaling(ReplicaBounds):
    """Scales by the load of callers. Needs KEDA and Prometheus."""

    kind: Literal["queue"]
    min: Annotated[int, Field(ge=0, le=1000)]
    """Fewest replicas. With 0, an on-demand pool without calls has none."""
    queue_milliseconds: Annotated[int, Field(ge=1, le=600_000)] = 50
    """Target of the mean milliseconds in the queue (kind triton)."""
    busy_percent: Annotated[int, Field(ge=1, le=100)] = 5
    """Target of the percentage of requests refused as `busy` (kind triton)."""
    waiting_requests: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Target of the mean number of waiting requests at each engine (kind openai)."""
    step_seconds: Annotated[int, Field(ge=1, le=1800)] = 60
    """Seconds between two changes by one replica: the time that one needs to start."""
    down_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Seconds for which fewer replicas must be enough before one is removed."""
    wake_seconds: Annotated[int, Field(ge=1, le=600)] = 45
    """Seconds that a caller waits for the first replica (min: 0) before it gets `busy`."""
    prometheus_address: Annotated[str, form(HTTP_URL, "http://prometheus.monitoring:9090")]
    """Prometheus that KEDA queries."""


POOL_REPLICAS: Final = 1  # Without replicas and autoscaling.
PoolScaling = Annotated[CpuScaling | QueueScaling, Field(discriminator="kind")]


class Pool(Renamable):
    """Replicas of one server on one kind of device. Each replica is one process on one slice."""

    loading: Loading
    """Models in memory: all, or those in use."""
    placement: Placement = CpuPlacement(kind="cpu")
    """Device of each replica."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Replicas. The default without autoscaling is 1."""
    autoscaling: PoolScaling | None = None
    """Autoscaler."""
    resources: ServerResources = ServerResources()
    """CPU and memory of each replica."""
    policy_resources: PolicyResources = PolicyResources()
    """CPU and memory of the eviction policy."""
    shared_memory: ByteQuantity = "1Gi"
    """Size of /dev/shm, part of the memory limit. Python backends use it."""
    scratch: ByteQuantity = "2Gi"
    """Size of /tmp on the node's disk, for logs and unstaged models of object storage."""
    node_selector: Labels = Field(default_factory=dict)
    """Node labels. Replicas always spread over zones and nodes."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods tolerate besides NVIDIA's."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    startup_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """Seconds that a replica may take to start and preload models."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1
    """Replicas that a node drain may evict at once."""

    _replicas_or_autoscaling = model_validator(mode="after")(replicas_or_autoscaling)

    @model_validator(mode="after")
    def _shared_memory_is_part_of_the_memory(self) -> Self:
        if byte_count(self.shared_memory) >= byte_count(self.resources.memory):
            limit = f"resources.memory {self.resources.memory}"
            raise ValueError(f"sharedMemory {self.shared_memory} counts towards {limit}, so it must be less")
        return self
