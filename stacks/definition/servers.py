"""Inference servers: what servers of every kind have, and the cloud identities of their pods."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from .base import NOT_IN_VALUES, DnsLabel, EnvironmentName, ObjectName, Renamable, Section, ServiceLabel, form
from .datasets import ModelRepository
from .pools import Pool

_ROLE = form(r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$", "arn:aws:iam::123456789012:role/name")


class AwsIdentity(Section):
    """An AWS role, by IRSA or by EKS Pod Identity."""

    cloud: Literal["aws"]
    role_arn: Annotated[str, _ROLE] | None = None
    """ARN of the role that reads the repository (IRSA); without it you associate a role with the server's service
    account (EKS Pod Identity)."""


class GcpIdentity(Section):
    """A Google service account (GKE Workload Identity)."""

    cloud: Literal["gcp"]
    service_account: Annotated[
        str, form(r"^[a-z0-9-]+@[a-z0-9.-]+\.gserviceaccount\.com$", "name@project.iam.gserviceaccount.com")
    ]
    """E-mail of the service account that reads the repository."""


class AzureIdentity(Section):
    """An Azure managed identity (Azure Workload Identity)."""

    cloud: Literal["azure"]
    client_id: Annotated[str, form(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "the client id, a UUID")]
    """Client id of the identity that reads the repository."""


Identity = Annotated[AwsIdentity | GcpIdentity | AzureIdentity, Field(discriminator="cloud")]


class ServerTls(Section):
    """Certificate from an existing secret."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls in the environment's namespace; ca.crt in it is what clients trust."""


class SecretVariable(Section):
    """An environment variable whose value is in a Secret of the environment's namespace."""

    name: EnvironmentName
    """Its name."""
    secret: ObjectName
    """Name of the Secret, which is there already."""
    key: Annotated[str, form(r"^[-._a-zA-Z0-9]{1,253}$", "letters, digits, dashes, dots, underscores")]
    """Key of the value in it."""


class ContainerVariables(Section):
    """Environment variables of a server's container."""

    environment: dict[EnvironmentName, str] = Field(default_factory=dict)
    """Those that are no secret."""
    secret_environment: tuple[SecretVariable, ...] = ()
    """Those that are secret."""

    @property
    def variables(self) -> Mapping[tuple[str, str | int], str]:
        """Names of all, by where they stand."""
        found: dict[tuple[str, str | int], str] = {("environment", name): name for name in self.environment}
        for number, variable in enumerate(self.secret_environment):
            found["secretEnvironment", number] = variable.name
        return found

    @model_validator(mode="after")
    def _no_variable_is_secret_and_plain(self) -> Self:
        """A container has each environment variable once."""
        for name in sorted({*self.environment} & {each.name for each in self.secret_environment}):
            raise ValueError(f"{name} stands in environment and in secretEnvironment: say it once")
        return self


class Server(Renamable):
    """One logical inference server: a model repository and the pools that serve it.

    Each kind adds its settings, below a key of the kind's name.
    """

    bound_to_image: ClassVar[str] = ""
    """Files of models that load only with the release of the image that they were built for."""
    loads_whole_repository: ClassVar[bool] = True  # In preload pools; what lies in a bucket is copied to /tmp first.

    name: ServiceLabel
    """Its name, with which the names of its Services begin."""
    formerly: Annotated[tuple[ServiceLabel, ...], NOT_IN_VALUES] = ()
    """Names that it had before, the oldest first: its objects in a cluster keep that one."""
    kind: str
    """Kind of the server."""
    image: DnsLabel
    """Its image, by its name under images."""
    repository: ModelRepository
    """Where its models lie: in a dataset, or straight in object storage."""
    identity: Identity | None = None
    """Cloud identity of its pods, which reads object storage."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Its pools."""

    @property
    def settings(self) -> ContainerVariables:
        """What its kind adds."""
        settings: ContainerVariables = getattr(self, self.kind)
        return settings

    @property
    def variables(self) -> Mapping[tuple[str, str | int], str]:
        """Names of environment variables of the container, by where they stand in the kind's settings."""
        return self.settings.variables

    @property
    def scales_by_queue(self) -> bool:
        """Say whether its metrics tell what KEDA asks for."""
        return True

    @property
    def shared_node_selector(self) -> Mapping[str, str]:
        """Labels that the nodes of those pods must carry which its pools share, where there are any."""
        return {}
