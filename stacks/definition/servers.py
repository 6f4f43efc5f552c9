"""Inference servers: keys of servers of every kind, and the cloud identities of their pods."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from .base import NOT_IN_VALUES, DnsLabel, EnvironmentName, ObjectName, Renamable, Section, ServiceLabel, form
from .datasets import ModelRepository
from .pools import Pool

_ROLE = form(r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$", "arn:aws:iam::123456789012:role/name")


class AwsIdentity(Section):
    """An AWS role, through IRSA or EKS Pod Identity."""

    cloud: Literal["aws"]
    role_arn: Annotated[str, _ROLE] | None = None
    """Role that reads the repository (IRSA). Without it, associate a role with the service account (EKS Pod
    Identity)."""


class GcpIdentity(Section):
    """A Google service account (GKE Workload Identity)."""

    cloud: Literal["gcp"]
    service_account: Annotated[
        str, form(r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$", "name@project.iam.gserviceaccount.com")
    ]
    """E-mail of the service account."""


class AzureIdentity(Section):
    """An Azure managed identity (Azure Workload Identity)."""

    cloud: Literal["azure"]
    client_id: Annotated[str, form(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "the client id, a UUID")]
    """Client id of the identity."""


Identity = Annotated[AwsIdentity | GcpIdentity | AzureIdentity, Field(discriminator="cloud")]


class ServerTls(Section):
    """Certificate from an existing secret."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls. Clients trust its ca.crt."""


class SecretVariable(Section):
    """An environment variable with its value in a Secret of the environment's namespace."""

    name: EnvironmentName
    """Name of the variable."""
    secret: ObjectName
    """Name of the Secret."""
    key: Annotated[str, form(r"^[-._a-zA-Z0-9]{1,253}$", "letters, digits, dashes, dots, underscores")]
    """Key in the Secret."""


class ContainerVariables(Section):
    """Environment variables of a server's container."""

    environment: dict[EnvironmentName, str] = Field(default_factory=dict)
    """Plain environment variables."""
    secret_environment: tuple[SecretVariable, ...] = ()
    """Environment variables from Secrets."""

    @property
    def variables(self) -> Mapping[tuple[str, str | int], str]:
        """Return the names of all variables by their paths in the settings."""
        found: dict[tuple[str, str | int], str] = {("environment", name): name for name in self.environment}
        for number, variable in enumerate(self.secret_environment):
            found["secretEnvironment", number] = variable.name
        return found

    @model_validator(mode="after")
    def _no_variable_is_secret_and_plain(self) -> Self:
        for name in sorted({*self.environment} & {each.name for each in self.secret_environment}):
            raise ValueError(f"environment and secretEnvironment both have {name}: remove it from one of them")
        return self


class Server(Renamable):
    """An inference server: a model repository and the pools that serve it.

    Each kind adds settings below a key with the kind's name.
    """

    bound_to_image: ClassVar[str] = ""
    """Files of models that load only with the release of the image that they were built for."""
    loads_whole_repository: ClassVar[bool] = True  # In preload pools. Models of a bucket are copied to /tmp first.

    name: ServiceLabel
    """Unique name, with which the names of its Services start."""
    formerly: Annotated[tuple[ServiceLabel, ...], NOT_IN_VALUES] = ()
    """Former names, oldest first. Objects keep the oldest."""
    kind: str
    """Kind of the server."""
    image: DnsLabel
    """Name of its image under `images`."""
    repository: ModelRepository
    """Model repository."""
    identity: Identity | None = None
    """Cloud identity of its pods, for object storage."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Pools of the server."""

    @property
    def settings(self) -> ContainerVariables:
        settings: ContainerVariables = getattr(self, self.kind)
        return settings

    @property
    def variables(self) -> Mapping[tuple[str, str | int], str]:
        return self.settings.variables

    @property
    def scales_by_queue(self) -> bool:
        """Return whether it has the metrics for queue scaling."""
        return True

    @property
    def shared_node_selector(self) -> Mapping[str, str]:
        """Return the node selector of pods that its pools share, if any."""
        return {}
