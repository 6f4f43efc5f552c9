"""The client configuration: where to publish and call models of each environment, and who may.

`tidegate environments` prints it, an admin gives it to the users, and the client reads it. It contains no secret. Field
names on the wire are camelCase. Unknown fields are refused.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from .message import Message
from .routing import ServedModel

VERSION: Final = 1
_RESERVED_ALIAS = re.compile(r"latest|v[0-9]+", re.IGNORECASE)
_ALIAS = re.compile(r"[A-Za-z0-9_-]{1,255}")
ALIAS_RULE: Final = (
    "the registry's alias has the environment's name. MLflow allows letters, digits, '_' and '-' in an alias, but "
    "reserves `latest` and `v` with a number"
)


def is_alias(name: str) -> bool:
    """Return whether MLflow accepts a name as an alias of a registered model."""
    return _ALIAS.fullmatch(name) is not None and _RESERVED_ALIAS.fullmatch(name) is None


class DatasetLocation(Message):
    """A model repository in a dataset, which each client can mount anywhere."""

    kind: Literal["dataset"] = "dataset"
    dataset: str
    path: str = ""
    domino_dataset_id: str | None = None  # Id by which Domino returns its name, if it is a dataset of Domino.
    volume: str  # Id of the volume. If two data planes have the same one, publishing to one publishes to both.


class ObjectStoreLocation(Message):
    """A model repository in object storage."""

    kind: Literal["object-store"] = "object-store"
    url: str  # `s3://bucket/prefix`, `gs://bucket/prefix` or `as://account/container/prefix`, as Triton reads it.


Location = Annotated[DatasetLocation | ObjectStoreLocation, Field(discriminator="kind")]


class PoolFacts(Message):
    """One pool of a server, with the limits for a model."""

    name: str
    loading: Literal["preload", "on-demand"]
    gpu: bool
    gpus: int | None = None  # GPUs, or slices of one, of each replica. None if unknown.
    memory_bytes: int | None = None  # Of the slice, or of the CPU container. None if unknown.
    capacity_bytes: int | None = None  # Part of it for models (on-demand pools).
    poll_seconds: int | None = None  # Between two reads of the repository (preload pools).


class ServerFacts(Message):
    """One logical inference server on one data plane."""

    name: str
    kind: str
    location: Location
    writers: tuple[str, ...] = ()  # Groups that may write the repository. Empty: all that can write it may.
    release: str | None = None  # Of Triton, from the tag of its image: 26.08.
    backends: tuple[str, ...] = ()  # Of its image. Empty if unknown.
    pools: tuple[PoolFacts, ...]


class ModelFacts(ServedModel):
    """A model's entry in the routing table."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names for calls, the model's own first."""
        return self.name, *(self.served_names or ())


class Plane(Message):
    """The environment on one data plane: a stack of the definition."""

    name: str
    formerly: tuple[str, ...] | None = None  # Former names, the oldest first, because records can have them.
    wave: int = 1  # Planes of lower waves come first.
    proxy_url: str
    servers: tuple[ServerFacts, ...]
    models: tuple[ModelFacts, ...] = ()


class Promotion(Message):
    """Conditions for a version to be deployed or promoted to the environment."""

    source: str | None = None
    """Environment in which the version must have been deployed. Without one, any registered version is accepted."""
    principals: tuple[str, ...] = ()
    """Principals that may do so, in addition to the groups, by their names at the environment's proxy."""
    groups: tuple[str, ...] = ()
    """Groups whose members may. Without principals and groups: the `writers` of the server's repository."""
    separation_of_duties: bool = False  # The person that registered a version may not promote it.
    soak_hours: Annotated[float, Field(ge=0)] = 0  # Hours for which it must have served in `source` without an error.


class Environment(Message):
    """One environment, on all its data planes."""

    name: str
    formerly: tuple[str, ...] | None = None  # Former names, because the registry's aliases and records can have them.
    production: bool = False
    promotion: Promotion = Promotion()
    planes: tuple[Plane, ...]


class Environments(Message):
    """The content of `environments.json`."""

    version: Literal[1] = VERSION
    environments: tuple[Environment, ...]

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [environment.name for environment in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("an environment is listed twice")
        for environment in self.environments:
            source = environment.promotion.source
            if source is not None and (source not in names or source == environment.name):
                raise ValueError(
                    f"environment {environment.name} takes versions from {source!r}, which is not another environment"
                )
        return self


class WhoAmI(Message):
    """The proxy's response at `/whoami`: the caller's identity."""

    environment: str
    principal: str
    groups: tuple[str, ...] = ()
    source: str  # The source of the identity: the URL of an issuer, `api-keys` or `domino`.
