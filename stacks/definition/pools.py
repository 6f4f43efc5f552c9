"""Pools: which models are in memory, what each replica runs on, how many replicas there are."""

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

_WHICH_CLASS = "staging of kind volume needs a storageClass, of which each replica gets a volume of its own"
_NO_CLASS = "storageClass is for staging of kind volume: take it away"


class Preload(Section):
    """Every model of the repository is in memory; changes of the repository are found by polling."""

    mode: Literal["preload"]
    poll_seconds: Seconds = 30
    """Seconds between two looks at the repository."""


class Staging(Conditional):
    """A folder beside each replica into which the eviction policy copies a model's files before they are loaded."""

    conditions: ClassVar = (
        Condition("volumes_have_a_class", _WHICH_CLASS, needs=("storageClass",), when={"kind": ("volume",)}),
        Condition("others_have_none", _NO_CLASS, forbids=("storageClass",), when={"kind": ("memory", "disk")}),
    )
    kind: Literal["memory", "disk", "volume"]
    """Where it lies: in the node's memory, on the node's disk (as ephemeral storage), or on a volume of its own that is
    made and deleted with the pod (such as NVMe, by its storage class). Kubernetes counts each against the node."""
    size: ByteQuantity
    """Its size; a sixteenth is left to folders and the file system, the rest is for files of models."""
    storage_class: ObjectName | None = None
    """Storage class of the volume, where it is one."""


class OnDemand(Section):
    """The eviction policy loads a model when it is called, and makes room for it when it must."""

    mode: Literal["on-demand"]
    policy: PolicyName = "break-even"
    """Which models go first. break-even: a model may go once it was idle for four times what its load took, and for a
    model whose callers are refused, another goes before that as soon as they have lost twice what its own callers would
    lose to its next load (the ski-rental rule, Karlin et al. 1988; it weighs as cost-aware does); models that timers
    call are loaded just before, where that costs others less. lru-idle, the reference's rule: least recently used of
    those idle for idleSeconds. cost-aware: weighs bytes, load seconds and use against each other. Or one of your own
    (docs/eviction.md).
    """
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """A model that was idle for at least this long may be evicted; with break-even, perhaps earlier."""
    capacity: ByteQuantity | None = None
    """Bytes that models may take on each replica. By default nine tenths of the slice's memory; on CPU, of the memory
    without sharedMemory. For shares of a GPU, whose size nothing tells, it must be said."""
    lease_seconds: Annotated[int, Field(ge=2, le=600)] = 15
    """How long a proxy's lease on a model lasts when it is not renewed."""
    wait_seconds: Annotated[int, Field(ge=0, le=600)] = 20
    """How long a caller may wait for a load before the answer is "busy, try again"."""
    staging: Staging | None = None
    """Keeps files of models near the GPU: a model that was evicted is loaded again from there, not from its repository.
    Off without it, and where the repository is a folder of the node (hostPath)."""

    @model_validator(mode="after")
    def _idle_is_at_least_the_lease(self) -> Self:
        """Otherwise a model in use would count as idle before its lease ends."""
        if self.idle_seconds < self.lease_seconds:
            times = f"idleSeconds {self.idle_seconds} is less than leaseSeconds {self.lease_seconds}"
            raise ValueError(f"{times}: a model in use would count as idle before its lease ends")
        return self


Loading = Annotated[Preload | OnDemand, Field(discriminator="mode")]


class QueueScaling(ReplicaBounds):
    """Replicas follow what callers wait for: their server's queues, and room for the models in use; needs KEDA and
    Prometheus. Pools of kind openai go by waitingRequests, all others by queueMilliseconds and busyPercent."""

    kind: Literal["queue"]
    min: Annotated[int, Field(ge=0, le=1000)]
    """Replicas at the least; with 0 an on-demand pool has none while nobody calls its models."""
    queue_milliseconds: Annotated[int, Field(ge=1, le=600_000)] = 50
    """Mean time in the queue, in milliseconds a request, that the autoscaler aims at."""
    busy_percent: Annotated[int, Field(ge=1, le=100)] = 5
    """Calls that are refused as "busy, try again" for want of room, in per cent of all, that the autoscaler aims at."""
    waiting_requests: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Requests that wait at each engine of kind openai, on the mean, that the autoscaler aims at."""
    step_seconds: Annotated[int, Field(ge=1, le=1800)] = 60
    """Seconds in which one replica at most is added, or taken away: what one takes to start, and to be felt."""
    down_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Seconds for which fewer replicas must have been enough before one is taken away."""
    wake_seconds: Annotated[int, Field(ge=1, le=600)] = 45
    """How long a caller waits for the first replica of a pool that has none (min: 0) before the answer is "busy, try
    again"; the replica comes all the same."""
    prometheus_address: Annotated[str, form(HTTP_URL, "http://prometheus.monitoring:9090")]
    """Address of the Prometheus server that KEDA asks."""


PoolScaling = Annotated[CpuScaling | QueueScaling, Field(discriminator="kind")]


class Pool(Renamable):
    """Replicas of one server on one kind of slice; one process holds one slice."""

    loading: Loading
    """Which models are in memory: all of them (preload), or those in use (on-demand)."""
    placement: Placement = CpuPlacement(kind="cpu")
    """What each replica runs on."""
    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """How many; 1 when neither this nor autoscaling is said."""
    autoscaling: PoolScaling | None = None
    """Bounds for an autoscaler, by CPU use or by queue time."""
    resources: ServerResources = ServerResources()
    """CPU and memory of each replica."""
    policy_resources: PolicyResources = PolicyResources()
    """CPU and memory of the eviction policy beside it (on-demand pools only)."""
    shared_memory: ByteQuantity = "1Gi"
    """Size of /dev/shm, which backends in Python use; it is part of the memory limit."""
    scratch: ByteQuantity = "2Gi"
    """Size of /tmp, where models from object storage are copied unless they are staged; the node gives it from its
    disk, and the log of the server counts against it."""
    node_selector: Labels = Field(default_factory=dict)
    """Further labels that nodes must carry. Replicas spread over zones and nodes anyway."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints to tolerate beside NVIDIA's own."""
    priority_class: ObjectName | None = None
    """PriorityClass of the pods."""
    startup_seconds: Annotated[int, Field(ge=30, le=86_400)] = 900
    """How long a replica may take to start; preloading big models takes long."""
    max_unavailable: Annotated[int, Field(ge=1, le=1000)] = 1
    """Replicas that a node drain may take away at once (PodDisruptionBudget)."""

    _replicas_or_autoscaling = model_validator(mode="after")(replicas_or_autoscaling)

    @model_validator(mode="after")
    def _shared_memory_is_part_of_the_memory(self) -> Self:
        """What lies in /dev/shm counts against the memory limit."""
        if byte_count(self.shared_memory) >= byte_count(self.resources.memory):
            limit = f"the memory limit, {self.resources.memory}"
            raise ValueError(f"sharedMemory {self.shared_memory} counts against {limit}, and must be less")
        return self
