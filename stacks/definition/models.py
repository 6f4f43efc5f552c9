"""Models: where each is served, and how its traffic is split."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator
from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN

from .base import MOST_NUMBER, NOT_IN_VALUES, ByteQuantity, Condition, Conditional, DnsLabel, Section, Without, form

_AS_A_FOLDER = "letters, digits, dots, dashes and underscores, as its folder in the repository"
MODEL_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}$"
ModelName = Annotated[str, form(MODEL_NAME, _AS_A_FOLDER)]
_AS_CLIENTS_SAY = (
    "letters, digits, dots, dashes, underscores and colons, at most 255, with single slashes between them, "
    "as in meta/llama-3.1-8b-instruct"
)
ServedName = Annotated[str, form(f"^{SERVED_NAME_PATTERN}$", _AS_CLIENTS_SAY, max_length=LONGEST_SERVED_NAME)]
_MLFLOWS_OWN = "is an alias that MLflow keeps for itself; name another, such as champion"
Alias = Annotated[ModelName, Without(r"^([lL][aA][tT][eE][sS][tT]|[vV][0-9]+)$", _MLFLOWS_OWN)]
Weight = Annotated[int, Field(ge=0, le=100)]


class VersionShare(Section):
    """A share of the traffic for one version."""

    version: Annotated[int, Field(ge=1, le=MOST_NUMBER)]
    """Version, as its folder in the repository."""
    weight: Weight
    """Share of the requests, in per cent; the shares of a model sum to 100."""
    pool: Annotated[DnsLabel | None, NOT_IN_VALUES] = None
    """Pool of the model's server that serves this version, where that is another than the model's (kind openai)."""


_ONE_WAY = "versions and alias cannot stand together: say either the versions or the alias"


class Model(Conditional):
    """One model that clients may call."""

    conditions: ClassVar = (Condition("traffic_is_said_once", _ONE_WAY, forbids=("alias",), when={"versions": ()}),)
    name: ModelName
    """Its name, which is its folder in the repository."""
    server: Annotated[DnsLabel, NOT_IN_VALUES]
    """Server that serves it."""
    pool: Annotated[DnsLabel | None, NOT_IN_VALUES] = None
    """Pool of that server; needed where the server has several, unless each version names its own."""
    versions: tuple[VersionShare, ...] = ()
    """Versions and their shares of the traffic; without versions and alias, the newest."""
    alias: Alias | None = None
    """Alias in the registry that says which version is served; not together with versions. The model's own
    configuration (config.pbtxt) tells which that is, in the entry tidegate.alias.<alias> of its parameters, with the
    version as string_value: the tool that publishes the model writes it. Without it calls are refused as busy."""
    served_names: tuple[ServedName, ...] = ()
    """Further names by which calls name the model, such as those that clients have already: meta/llama-3.1-8b-instruct,
    llama3:8b (kind openai). Access, limits and metrics go by its own name."""
    idle_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """Seconds of idleness after which it may be evicted; by default its pool's."""
    pinned: bool = False
    """Loaded at start and never evicted (on-demand pools)."""
    footprint: ByteQuantity | None = None
    """GPU memory it takes when loaded; measured when not declared."""

    def pools(self, otherwise: str) -> dict[str, tuple[VersionShare, ...]]:
        """Return the pools that serve it, each with the versions there; the pool `otherwise` where none is named."""
        own = self.pool or otherwise
        found: dict[str, tuple[VersionShare, ...]] = {} if self.versions else {own: ()}
        for share in self.versions:
            there = share.pool or own
            found[there] = (*found.get(there, ()), share)
        return found

    @model_validator(mode="after")
    def _traffic_is_whole(self) -> Self:
        """Each version once, with shares that sum to 100."""
        numbers = [share.version for share in self.versions]
        if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
            raise ValueError(f"version {twice[0]} stands twice in versions")
        if self.versions and (total := sum(share.weight for share in self.versions)) != 100:
            weights = " + ".join(str(share.weight) for share in self.versions)
            raise ValueError(f"the weights of versions must sum to 100, and {weights} is {total}")
        return self
