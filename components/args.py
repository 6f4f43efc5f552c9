"""The arguments of the components: settings of the definition, and what resolving adds. Does not need Pulumi's SDK."""

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
from stacks.definition.pools import POOL_REPLICAS, Pool
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
"""The pause before SIGTERM, in which a pod's address leaves Services, DNS and the proxies' tables."""
GRACE_SECONDS: Final = PRE_STOP_SECONDS + 10
"""The addition to the seconds that a process may take to stop: that pause, and a margin before SIGKILL."""


class TlsArgs(Section):
    """The certificate with which the proxy serves HTTPS."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace."""
    certificate: CertificateIssuer | None = None
    """Issuer that writes the secret. Without it the secret must exist."""


class ProxyArgs(ProxySettings):
    """The inference proxy: the only entry point to every model."""

    image: ImageReference
    """Image of the proxy."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = REPLICAS
    """Number of replicas. It has no effect if an autoscaler sets the number."""
    tls: TlsArgs | None = None  # type: ignore[assignment]
    """Certificate for HTTPS. Without it the proxy serves plain HTTP."""


class PulumiTimeouts(Section):
    """Seconds that Pulumi's engine waits for a pool."""

    ready: int
    """Until a new pool is ready."""
    updated: int
    """Until all replicas are updated."""


class PoolArgs(Pool):
    """Replicas of one server on one kind of slice. Each process has one slice."""

    called: DnsLabel | None = None
    """Name of the pool for clients and metrics, if it differs from the name of its objects."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = POOL_REPLICAS
    """Number of replicas. It has no effect if an autoscaler sets the number."""
    models: tuple[Model, ...] = ()
    """Models of the pool."""
    pulumi_timeouts: Annotated[PulumiTimeouts | None, NOT_IN_VALUES] = None
    """Timeouts of Pulumi's engine. The default is ten minutes."""


class VolumeRepositoryArgs(Section):
    """A model repository in a dataset, mounted read-only."""

    kind: Literal["volume"] = "volume"
    claim: ObjectName
    """Claim of the dataset's volume."""
    sub_path: RelativePath | None = None
    """Directory of the repository below the volume's root. Without it the repository is the root."""
    gcs_fuse: bool = False
    """Whether it is a GCS FUSE volume, which needs an annotation on the pods."""


class ObjectStoreRepositoryArgs(Section):
    """A model repository in object storage, which the server reads itself."""

    kind: Literal["object-store"] = "object-store"
    url: ObjectStoreUrl
    """URL of the repository, such as s3://bucket/prefix."""


class ServerArgs(Section):
    """One logical inference server: a model repository and the pools that serve it. Each kind adds its settings."""

    name: ServiceLabel
    """Name of the server, and prefix of the names of its objects."""
    called: ServiceLabel | None = None
    """Name of the server for clients, access rules and metrics, if it differs from the prefix of its objects."""
    kind: str
    """Kind of the server."""
    image: ImageReference
    """Image of the server."""
    repository: Annotated[VolumeRepositoryArgs | ObjectStoreRepositoryArgs, Field(discriminator="kind")]
    """Model repository: in a dataset, or in object storage."""
    identity: Identity | None = None
    """Cloud identity with which the pods read object storage."""
    pools: Annotated[tuple[PoolArgs, ...], Field(min_length=1)]
    """Pools of the server."""


class TritonServerArgs(ServerArgs):
    """One logical Triton inference server: a model repository and the pools that serve it."""

    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    triton: TritonSettings = TritonSettings()
    """Settings of the Triton process."""


class OpenaiServerArgs(ServerArgs):
    """One logical server with the OpenAI API. Each of its pools serves one model."""

    kind: Literal["openai"]
    """Kind of the server."""
    openai: AnyEngine
    """Engine, and the settings of its process."""


AnyServerArgs = Annotated[TritonServerArgs | OpenaiServerArgs, Field(discriminator="kind"), TritonByDefault()]


class DatasetVolumeArgs(VolumeBase):
    """One dataset: a volume with model repositories."""

    storage_class: ObjectName | None = None
    """Storage class of the volume and its claim. Without it they have none, not even the cluster's default."""
    source: Annotated[CsiSource | NfsSource | HostPathSource, Field(discriminator="kind")]
    """Source of the volume."""


class NetworkBoundaryArgs(Network):
    """Allowed connections. All others are denied in both directions."""

    prometheus: PrometheusPeer = PrometheusPeer()
    """Pods that can read metrics."""


class NamespaceArgs(Section):
    """The namespace. It enforces the Pod Security Standard "restricted"."""

    name: Namespace
    """Name of the namespace."""
    labels: NamespaceLabels = Field(default_factory=dict)
    """Further labels."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations."""


class ClaimArgs(Section):
    """An existing PersistentVolumeClaim, which Tidegate uses and never changes."""

    name: ObjectName
    """Name of the claim in the environment's namespace."""


class EnvironmentArgs(Section):
    """A resolved environment: one environment on one data plane."""

    name: DnsLabel
    """Name of the environment, such as dev or prod. It is the label app.kubernetes.io/instance of every object."""
    called: DnsLabel | None = None
    """Name of the environment for clients, if it differs from the name in its objects."""
    namespace: NamespaceArgs
    """Namespace of the environment. Nothing else may use it."""
    pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets for pulling images."""
    pods: Pods = Pods()
    """Settings of all pods."""
    datasets: tuple[DatasetVolumeArgs, ...] = ()
    """Volumes with model repositories."""
    claims: tuple[ClaimArgs, ...] = ()
    """Existing claims of volumes with model repositories."""
    eviction_policy_image: ImageReference | None = None
    """Image of the eviction policy, a container in each replica. Required if a pool loads models on demand."""
    servers: Annotated[tuple[AnyServerArgs, ...], Field(min_length=1)]
    """Inference servers, their pools and their models."""
    proxy: ProxyArgs
    """The inference proxy."""
    network: NetworkBoundaryArgs = NetworkBoundaryArgs()
    """Allowed connections."""
    domino: Domino | None = None
    """Integration with a Domino platform."""
    mesh: Mesh | None = None
    """Settings for Istio, if the cluster uses it."""
    monitoring: Monitoring | None = None
    """Metrics and alerts through the Prometheus operator, which must be in the cluster."""

    @property
    def naming(self) -> Naming:
        return Naming(self.name, self.namespace.name, self.called)


@dataclass(frozen=True)
class PoolContext:
    """A pool with the settings around it, and the names and labels that follow from them."""

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
        return self.naming.pool_selector(self.server.kind, self.server.name, self.args.name)

    @property
    def labels(self) -> Texts:
        return self.naming.labels(self.server.kind, self.selector)


def external_name(part: ServerArgs | PoolArgs, make: Callable[[str], Made]) -> Made:
    """Return the result of `make` for the name of a server or a pool for clients."""
    return either(part.called, make, lambda: make(part.name))


def by_kind(
    server: ServerArgs,
    triton: Callable[[TritonServerArgs], Made | None],
    openai: Callable[[OpenaiServerArgs], Made | None],
) -> Made | None:
    """Return the result of the function for the kind of a server."""
    makers: dict[type, Callable[[Any], Made | None]] = {TritonServerArgs: triton, OpenaiServerArgs: openai}
    return of_kinds(server, makers)


def repository_root(server: ServerArgs, mounted_at: str, make: Callable[[str], Made]) -> Made | None:
    """Return the result of `make` for a server's model repository: the mount path of the volume, or a URL."""
    return of_kind(
        server.repository, ObjectStoreRepositoryArgs, lambda bucket: make(bucket.url), lambda: make(mounted_at)
    )
