"""What clients are told of the environments: where to publish models, where to call them, and who may.

`tidegate environments` prints it, an admin gives it to the users, and the client reads it. It holds no secret. Field
names on the wire are camelCase; unknown fields are refused.
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
    "the registry's alias has the environment's name, and MLflow takes letters, digits, '_' and '-' for an alias, but "
    "reserves `latest` and `v` with a number"
)


def is_alias(name: str) -> bool:
    """Tell whether MLflow takes a name for an alias of a registered model."""
    return _ALIAS.fullmatch(name) is not None and _RESERVED_ALIAS.fullmatch(name) is None


class DatasetLocation(Message):
    """A model repository in a dataset, which each client has mounted wherever it likes."""

    kind: Literal["dataset"] = "dataset"
    dataset: str
    path: str = ""
    domino_dataset_id: str | None = None  # Where it is a dataset of Domino's: its id, by which Domino tells its name.
    volume: str  # Which volume it is; where two data planes name the same one, publishing to one publishes to both.


class ObjectStoreLocation(Message):
    """A model repository in object storage."""

    kind: Literal["object-store"] = "object-store"
    url: str  # `s3://bucket/prefix`, `gs://bucket/prefix` or `as://account/container/prefix`, as Triton reads it.


Location = Annotated[DatasetLocation | ObjectStoreLocation, Field(discriminator="kind")]


class PoolFacts(Message):
    """One pool of a server: what a model must fit."""

    name: str
    loading: Literal["preload", "on-demand"]
    gpu: bool
    gpus: int | None = None  # How many GPUs, or slices of one, each replica has; None where nothing tells.
    memory_bytes: int | None = None  # Of the slice, or of the processor's container; None where nothing tells.
    capacity_bytes: int | None = None  # What models may take of it (on-demand pools).
    poll_seconds: int | None = None  # Between two looks at the repository (preload pools).


class ServerFacts(Message):
    """One logical inference server on one data plane."""

    name: str
    kind: str
    location: Location
    writers: tuple[str, ...] = ()  # Groups that may write the repository; without any, everybody that can write it may.
    release: str | None = None  # Of Triton, by the tag of its image: 26.08.
    backends: tuple[str, ...] = ()  # Of its image; without any, that is not known.
    pools: tuple[PoolFacts, ...]


class ModelFacts(ServedModel):
    """How the routing table serves a model."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which calls name it, its own in front."""
        return self.name, *(self.served_names or ())


class Plane(Message):
    """The environment on one data plane: a stack of the definition."""

    name: str
    formerly: tuple[str, ...] | None = None  # Names that it had before, the oldest first: records may have them.
    wave: int = 1  # Planes of lower waves come first.
    proxy_url: str
    servers: tuple[ServerFacts, ...]
    models: tuple[ModelFacts, ...] = ()


class Promotion(Message):
    """What must hold before a version comes into the environment."""

    source: str | None = None
    """Environment in which the version must have been deployed; anything registered will do without one."""
    principals: tuple[str, ...] = ()
    """Callers that may, by name, besides the groups; names are those that the environment's proxy knows callers by."""
    groups: tuple[str, ...] = ()
    """Groups whose members may. Neither principals nor groups: the `writers` of the server's repository."""
    separation_of_duties: bool = False  # The person that registered a version may not bring it in.
    soak_hours: Annotated[float, Field(ge=0)] = 0  # Hours that it must have served in `source` without an error.


class Environment(Message):
    """One environment, wherever it is."""

    name: str
    formerly: tuple[str, ...] | None = None  # Names that it had: the registry's aliases and records may have them.
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
            raise ValueError("an environment stands twice")
        for environment in self.environments:
            source = environment.promotion.source
            if source is not None and (source not in names or source == environment.name):
                raise ValueError(
                    f"environment {environment.name} takes versions from {source!r}, which is no other one"
                )
        return self


class WhoAmI(Message):
    """What the proxy answers at `/whoami`: as whom it knows the caller."""

    environment: str
    principal: str
    groups: tuple[str, ...] = ()
    source: str  # What vouches: the URL of an issuer, `api-keys` or `domino`.
