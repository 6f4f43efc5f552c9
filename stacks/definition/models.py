"""Models: the server of each, and the split of its traffic."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator
from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN

from .base import MOST_NUMBER, NOT_IN_VALUES, ByteQuantity, Condition, Conditional, DnsLabel, Section, Without, form

_AS_A_DIRECTORY = "letters, digits, dots, dashes and underscores, at most 127"
MODEL_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}$"
ModelName = Annotated[str, form(MODEL_NAME, _AS_A_DIRECTORY, "model name")]
_IN_REQUESTS = (
    "letters, digits, dots, dashes, underscores and colons, at most 255, with single slashes between them, "
    "as in meta/llama-3.1-8b-instruct"
)
ServedName = Annotated[str, form(f"^{SERVED_NAME_PATTERN}$", _IN_REQUESTS, max_length=LONGEST_SERVED_NAME)]
_MLFLOWS_OWN = "is an alias that MLflow reserves: set another, such as champion"
Alias = Annotated[ModelName, Without(r"^([lL][aA][tT][eE][sS][tT]|[vV][0-9]+)$", _MLFLOWS_OWN)]
Weight = Annotated[int, Field(ge=0, le=100)]


class VersionShare(Section):
    """A version with its share of the traffic."""

    version: Annotated[int, Field(ge=1, le=MOST_NUMBER)]
    """Version, the name of its directory."""
    weight: Weight
    """Percentage of requests. The percentages of a model sum to 100."""
    pool: Annotated[DnsLabel | None, NOT_IN_VALUES] = None
    """Pool of this version (kind openai). The default is the model's."""


_ONE_WAY = "versions and alias exclude each other: remove one"


class Model(Conditional):
    """A model that clients can call.

    `tidegate deploy` and `tidegate promote` write the version of an `alias` to the parameter `tidegate.alias.<alias>`
    in the model's config.pbtxt. Without it, the proxy responds `busy`.
    """

    conditions: ClassVar = (Condition("traffic_is_split_once", _ONE_WAY, forbids=("alias",), when={"versions": ()}),)
    name: ModelName
    """Name, and its directory in the repository."""
    server: Annotated[DnsLabel, NOT_IN_VALUES]
    """Its server."""
    pool: Annotated[DnsLabel | None, NOT_IN_VALUES] = None
    """Its pool. Required if the server has several, unless each version has one."""
    versions: tuple[VersionShare, ...] = ()
    """Versions and their shares of the traffic. Without versions and alias, the newest gets all."""
    alias: Alias | None = None
    """Alias in the registry of the version that gets all requests."""
    served_names: tuple[ServedName, ...] = ()
    """More names in requests (kind openai). Access rules, limits and metrics use the model's name."""
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """Idle seconds after which the policy may evict it. The default is its pool's."""
    pinned: bool = False
    """Whether the policy loads it at start and never evicts it."""
    footprint: ByteQuantity | None = None
    """GPU memory. By default the policy measures it."""

    def pools(self, otherwise: str) -> dict[str, tuple[VersionShare, ...]]:
        """Return its pools, each with the versions there. `otherwise` is the pool if the model names none."""
        own = self.pool or otherwise
        found: dict[str, tuple[VersionShare, ...]] = {} if self.versions else {own: ()}
        for share in self.versions:
            there = share.pool or own
            found[there] = (*found.get(there, ()), share)
        return found

    @model_validator(mode="after")
    def _traffic_is_whole(self) -> Self:
        numbers = [share.version for share in self.versions]
        if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
            raise ValueError(f"versions has version {twice[0]} twice: remove one")
        if self.versions and (total := sum(share.weight for share in self.versions)) != 100:
            weights = " + ".join(str(share.weight) for share in self.versions)
            raise ValueError(f"the weights of versions must sum to 100, but {weights} is {total}")
        return self
