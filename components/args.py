"""The arguments of the components: what the definition says, and what resolving adds. Pulumi's SDK is not needed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field

from stacks.definition import Namespace, NamespaceLabels
from stacks.definition.base import (
    NOT_IN_VALUES,
    Annotations,
    DnsLabel,
    ObjectName,
    RelativePath,
    Section,
    ServiceLabel,
    form,
)
from stacks.definition.datasets import CsiSource, HostPathSource, NfsSource, ObjectStoreUrl, VolumeBase
from stacks.definition.environment import ApiServer, Domino, Mesh, Monitoring, Network, PrometheusPeer, PullSecret
from stacks.definition.images import REPOSITORY
from stacks.definition.kinds import TritonByDefault
from stacks.definition.models import Model
from stacks.definition.openai import AnyEngine
from stacks.definition.pods import Pods
from stacks.definition.pools import Pool
from stacks.definition.proxy import REPLICAS, CertificateIssuer
from stacks.definition.proxy import Proxy as ProxySettings
from stacks.definition.servers import Identity
from stacks.definition.triton import TritonSettings

from .naming import Naming, Texts, pool_headless_name
from .values import either, of_kind, of_kinds

Made = TypeVar("Made")
_TAG_AND_DIGEST = r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
ImageReference = Annotated[str, form(f"^{REPOSITORY}{_TAG_AND_DIGEST}$", "repository:tag@sha256:digest")]

PRE_STOP_SECONDS: Final = 10
"""Between the news that a pod goes and SIGTERM: its address leaves Services, DNS and the proxies' tables meanwhile."""
GRACE_SECONDS: Final = PRE_STOP_SECONDS + 10
"""What a pod gets on top of the seconds that its process may take to stop: that pause, and a margin before SIGKILL."""


class TlsArgs(Section):
    """The certificate that the proxy serves HTTPS with."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace."""
    certificate: CertificateIssuer | None = None
    """Issuer that writes the secret; it is there already without one."""


class ProxyArgs(ProxySettings):
    """The inference proxy: the one entry point to every model."""

    image: ImageReference
    """Its image."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = REPLICAS
    """How many; without effect where an autoscaler owns the number."""
    tls: TlsArgs | None = None  # type: ignore[assignment]
    """Certificate it serves HTTPS with; plain HTTP without one."""


class PulumiTimeouts(Section):
    """How many seconds Pulumi's engine waits for a pool."""

    ready: int
    """Until it is ready when it is new."""
    updated: int
    """Until an update has gone through all replicas."""


class PoolArgs(Pool):
    """Replicas of one server on one kind of slice; one process holds one slice."""

    called: DnsLabel | None = None
    """What clients and metrics call it, where that is another name than its objects have."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many; without effect where an autoscaler owns the number."""
    models: tuple[Model, ...] = ()
    """Models that it serves."""
    pulumi_timeouts: Annotated[PulumiTimeouts | None, NOT_IN_VALUES] = None
    """How long Pulumi's engine waits; ten minutes without it."""


class VolumeRepositoryArgs(Section):
    """A model repository in a dataset, which is mounted read-only."""

    kind: Literal["volume"] = "volume"
    claim: ObjectName
    """Claim of the dataset's volume."""
    sub_path: RelativePath | None = None
    """Folder of the repository below the volume's root; the root itself without one."""
    gcs_fuse: bool = False
    """Whether it is a volume of GCS FUSE, which adds a sidecar to pods with its annotation."""


class ObjectStoreRepositoryArgs(Section):
    """A model repository straight in object storage; the server reads it itself."""

    kind: Literal["object-store"] = "object-store"
    url: ObjectStoreUrl
    """Where it is, such as s3://bucket/prefix."""


class ServerArgs(Section):
    """One logical inference server: a model repository and the pools that serve it. Each kind adds its settings."""

    name: ServiceLabel
    """Its name, with which the names of its objects begin."""
    called: ServiceLabel | None = None
    """What clients, access rules and metrics call it, where that is another name than its objects have."""
    kind: str
    """Kind of the server."""
    image: ImageReference
    """Its image."""
    repository: Annotated[VolumeRepositoryArgs | ObjectStoreRepositoryArgs, Field(discriminator="kind")]
    """Where its models lie: in a dataset, or straight in object storage."""
    identity: Identity | None = None
    """Cloud identity of its pods, which reads object storage."""
    pools: Annotated[tuple[PoolArgs, ...], Field(min_length=1)]
    """Its pools."""


class TritonServerArgs(ServerArgs):
    """One logical Triton inference server: a model repository and the pools that serve it."""

    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    triton: TritonSettings = TritonSettings()
    """Settings of the Triton process."""


class OpenaiServerArgs(ServerArgs):
    """One logical server of OpenAI's API: pools of which each serves one model."""

    kind: Literal["openai"]
    """Kind of the server."""
    openai: AnyEngine
    """Which engine it is, and the settings of its process."""


AnyServerArgs = Annotated[TritonServerArgs | OpenaiServerArgs, Field(discriminator="kind"), TritonByDefault()]


class DatasetVolumeArgs(VolumeBase):
    """One dataset: a volume that holds model repositories."""

    storage_class: ObjectName | None = None
    """Class of the volume and its claim; none without it, not even the cluster's default."""
    source: Annotated[CsiSource | NfsSource | HostPathSource, Field(discriminator="kind")]
    """Where it is."""


class NetworkBoundaryArgs(Network):
    """Who may talk to whom; everything else is refused in both directions."""

    prometheus: PrometheusPeer = PrometheusPeer()
    """Who may read metrics."""


class NamespaceArgs(Section):
    """The namespace; Pod Security "restricted" is enforced in it."""

    name: Namespace
    """Its name."""
    labels: NamespaceLabels = Field(default_factory=dict)
    """Further labels."""
    annotations: Annotations = Field(default_factory=dict)
    """Its annotations."""


class ClaimArgs(Section):
    """A PersistentVolumeClaim that exists already; it is used and never changed."""

    name: ObjectName
    """Its name, in the environment's namespace."""


class EnvironmentArgs(Section):
    """A resolved environment: one environment on one data plane."""

    name: DnsLabel
    """Name of the environment, such as dev or prod; it is the label app.kubernetes.io/instance of every object."""
    called: DnsLabel | None = None
    """What clients call it, where that is another name than its objects have."""
    namespace: NamespaceArgs
    """The namespace that the environment has to itself."""
    pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets to pull images with."""
    pods: Pods = Pods()
    """What all pods carry."""
    datasets: tuple[DatasetVolumeArgs, ...] = ()
    """Volumes that hold model repositories."""
    claims: tuple[ClaimArgs, ...] = ()
    """Claims of volumes with model repositories that exist already."""
    eviction_policy_image: ImageReference | None = None
    """Image of the eviction policy, the container beside each replica; needed where a pool loads models on demand."""
    servers: Annotated[tuple[AnyServerArgs, ...], Field(min_length=1)]
    """Inference servers, their pools and their models."""
    proxy: ProxyArgs
    """The inference proxy."""
    network: NetworkBoundaryArgs = NetworkBoundaryArgs()
    """Who may talk to whom."""
    domino: Domino | None = None
    """Integration with a Domino platform."""
    mesh: Mesh | None = None
    """Istio settings, where the cluster runs with it."""
    monitoring: Monitoring | None = None
    """Metrics and alerts by the Prometheus operator, which must be in the cluster."""

    @property
    def naming(self) -> Naming:
        """Names and namespace of the environment's objects."""
        return Naming(self.name, self.namespace.name, self.called)


@dataclass(frozen=True)
class PoolContext:
    """A pool with its surroundings, and what follows from them for the pool's objects."""

    args: PoolArgs
    server: ServerArgs
    naming: Naming
    policy_image: ImageReference | None
    every_pod: Pods
    mesh: Mesh | None
    api_server: ApiServer | None = None

    @property
    def name(self) -> str:
        """Name of the StatefulSet, the Service and the budget."""
        return f"{self.server.name}-{self.args.name}"

    @property
    def headless_name(self) -> str:
        """Name of the Service whose addresses are the replicas."""
        return pool_headless_name(self.server.name, self.args.name)

    @property
    def selector(self) -> Texts:
        """Labels by which the pods are found."""
        return self.naming.pool_selector(self.server.kind, self.server.name, self.args.name)

    @property
    def labels(self) -> Texts:
        """Labels of the objects."""
        return self.naming.labels(self.server.kind, self.selector)


def external_name(part: ServerArgs | PoolArgs, make: Callable[[str], Made]) -> Made:
    """Return what `make` makes of the name by which clients know a server or a pool."""
    return either(part.called, make, lambda: make(part.name))


def by_kind(
    server: ServerArgs,
    triton: Callable[[TritonServerArgs], Made | None],
    openai: Callable[[OpenaiServerArgs], Made | None],
) -> Made | None:
    """Return what the function for the kind of a server makes of it."""
    makers: dict[type, Callable[[Any], Made | None]] = {TritonServerArgs: triton, OpenaiServerArgs: openai}
    return of_kinds(server, makers)


def repository_root(server: ServerArgs, mounted_at: str, make: Callable[[str], Made]) -> Made | None:
    """Return what `make` makes of where a server finds its models: where the volume is mounted, or a URL."""
    return of_kind(
        server.repository, ObjectStoreRepositoryArgs, lambda bucket: make(bucket.url), lambda: make(mounted_at)
    )
