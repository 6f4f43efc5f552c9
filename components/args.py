"""The arguments of the proxy, of servers of every kind, their pools and models: what the definition says of them, and
what resolving adds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import pulumi
from pydantic import Field, TypeAdapter

from stacks.definition.base import (
    LEAST_BYTES,
    MOST_NUMBER,
    NOT_IN_VALUES,
    ObjectName,
    RelativePath,
    Section,
    ServiceLabel,
    byte_count,
)
from stacks.definition.datasets import ObjectStoreUrl
from stacks.definition.environment import Domino
from stacks.definition.images import Repository
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, Pool, Preload
from stacks.definition.proxy import REPLICAS, CertificateIssuer
from stacks.definition.proxy import Proxy as ProxySettings
from stacks.definition.servers import Identity

from .place import Place, Texts, pool_headless_name
from .values import of_kind

Made = TypeVar("Made")
_REPOSITORY = TypeAdapter(Repository).json_schema()["pattern"].removeprefix("^").removesuffix("$")

ImageReference = Annotated[
    str,
    Field(
        pattern=rf"^{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?$",
        json_schema_extra={"hint": "repository:tag@sha256:digest"},
    ),
]
Bytes = Annotated[int, Field(ge=LEAST_BYTES, le=MOST_NUMBER)]


class TlsArgs(Section):
    """The certificate that the proxy serves HTTPS with."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace."""
    certificate: CertificateIssuer | None = None
    """Issuer that writes the secret; it is there already without one."""


class ProxyArgs(ProxySettings):
    """The inference proxy: the one door to every model."""

    image: ImageReference
    """Its image."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = REPLICAS
    """How many; without effect where an autoscaler owns the number."""
    tls: TlsArgs | None = None  # type: ignore[assignment]
    """Certificate it serves HTTPS with; plain HTTP without one."""
    body_limit_bytes: Bytes = byte_count(ProxySettings().body_limit)
    """Largest request body."""


class OnDemandArgs(OnDemand):
    """The eviction policy loads a model when it is called, and makes room for it when it must."""

    capacity_bytes: Bytes | None = None
    """Bytes that models may take on each replica; nine tenths of the slice where a MIG profile tells its size."""


class ModelArgs(Model):
    """One model that clients may call."""

    footprint_bytes: Bytes | None = None
    """GPU memory it takes when loaded; measured when not declared."""


class PulumiTimeouts(Section):
    """How many seconds Pulumi's engine waits for a pool."""

    ready: int
    """Until it is ready when it is new."""
    updated: int
    """Until an update has gone through all replicas."""

    @property
    def custom_timeouts(self) -> pulumi.CustomTimeouts:
        """The same for the engine."""
        return pulumi.CustomTimeouts(create=f"{self.ready}s", update=f"{self.updated}s")


class PoolArgs(Pool):
    """Replicas of one server on one kind of slice; one process holds one slice."""

    loading: Annotated[Preload | OnDemandArgs, Field(discriminator="mode")]
    """Which models are in memory: all of them (preload), or those in use (on-demand)."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many; without effect where an autoscaler owns the number."""
    models: tuple[ModelArgs, ...] = ()
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


class ObjectStoreRepositoryArgs(Section):
    """A model repository straight in object storage; the server reads it itself."""

    kind: Literal["object-store"] = "object-store"
    url: ObjectStoreUrl
    """Where it is, such as s3://bucket/prefix."""


class ServerArgs(Section):
    """One logical inference server: a model repository and the pools that serve it. Each kind adds its settings."""

    name: ServiceLabel
    """Its name, with which the names of its objects begin."""
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


@dataclass(frozen=True)
class PoolContext:
    """A pool with its surroundings, and what follows from them for the pool's objects."""

    args: PoolArgs
    server: ServerArgs
    place: Place
    policy_image: ImageReference | None
    domino: Domino | None

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
        return self.place.pool_selector(self.server.kind, self.server.name, self.args.name)

    @property
    def labels(self) -> Texts:
        """Labels of the objects."""
        return self.place.labels(self.server.kind, self.selector)


def repository_root(server: ServerArgs, mounted_at: str, make: Callable[[str], Made]) -> Made | None:
    """Return what `make` makes of where a server finds its models: where the volume is mounted, or a URL."""
    return of_kind(
        server.repository, ObjectStoreRepositoryArgs, lambda bucket: make(bucket.url), lambda: make(mounted_at)
    )
