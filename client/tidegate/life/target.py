"""Where a model goes: the repositories of an environment, and everything that is called from each of them."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate_contracts.environments import Environment, Environments, Location, ObjectStoreLocation, PoolFacts

from ..environments import Home, homes
from ..errors import UsageError
from ..kinds import Kind, kind_of_server


@dataclass(frozen=True)
class Use:
    """A home of the model in an environment that reads the same repository."""

    environment: Environment
    home: Home

    @property
    def routed(self) -> str | None:
        """The alias by which the definition has it called, if it does."""
        return self.home.model.alias

    @property
    def named(self) -> frozenset[int]:
        """Versions that the definition itself names: those with shares, and the mirror's."""
        model = self.home.model
        mirrored = [model.mirror.version] if model.mirror is not None else []
        return frozenset([*(share.version for share in model.versions), *mirrored])

    @property
    def follows(self) -> str:
        """What decides which version is called: its `alias`, `shares` of versions, or `newest`."""
        model = self.home.model
        return "alias" if model.alias is not None else "shares" if model.versions else "newest"

    @property
    def kind(self) -> Kind:
        """The kind of its server. Raises UsageError where this client does not know it."""
        return kind_of_server(self.home.server.kind, self.home.server.name)

    @property
    def pool(self) -> PoolFacts:
        """The pool that serves it. Raises UsageError where the file contradicts itself."""
        for pool in self.home.server.pools:
            if pool.name == self.home.model.pool:
                return pool
        raise UsageError(f"the server {self.home.server.name} has no pool {self.home.model.pool}")


@dataclass(frozen=True)
class Place:
    """One repository that the model is published to, however many data planes read it."""

    key: tuple[str, ...]
    """Volume and path, or the URL: the same for the same repository."""
    uses: tuple[Use, ...]
    """By the environment itself, in the order of its roll-out."""
    shared: tuple[Use, ...]
    """By other environments, whose versions must stay."""

    @property
    def location(self) -> Location:
        """Where it is."""
        return self.uses[0].home.server.location

    @property
    def kind(self) -> Kind:
        """The kind of the servers that read it."""
        return self.uses[0].kind

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.uses[0].home.model.name

    @property
    def aliases(self) -> frozenset[str]:
        """Those that the environment's version has in config.pbtxt."""
        return frozenset(use.routed for use in self.uses if use.routed is not None)

    @property
    def newest(self) -> bool:
        """Whether anybody calls simply the newest version that is served."""
        return any(use.follows == "newest" for use in (*self.uses, *self.shared))

    @property
    def named(self) -> frozenset[int]:
        """Versions that a definition names."""
        return frozenset(number for use in (*self.uses, *self.shared) for number in use.named)


def places(of: Environment, model: str, known: Environments) -> tuple[Place, ...]:
    """Return the repositories that the environment reads the model from, each once, in the order of the roll-out.

    Raises NotFoundError where the definition does not name the model there.
    """
    mine: dict[tuple[str, ...], list[Use]] = {}
    for home in homes(of, model):
        mine.setdefault(_key(home.server.location), []).append(Use(of, home))
    return tuple(Place(key, tuple(uses), tuple(_others(key, of, model, known))) for key, uses in mine.items())


def servers(of: Environment) -> dict[tuple[str, ...], tuple[Home, ...]]:
    """Return every repository of the environment, with the models that the definition serves from it."""
    found: dict[tuple[str, ...], list[Home]] = {}
    for plane in sorted(of.planes, key=lambda plane: plane.wave):
        for server in plane.servers:
            models = [model for model in plane.models if model.server == server.name]
            found.setdefault(_key(server.location), []).extend(Home(plane, server, model) for model in models)
    return {key: tuple(inside) for key, inside in found.items()}


def _others(key: tuple[str, ...], of: Environment, model: str, known: Environments) -> Iterable[Use]:
    for other in known.environments:
        if other.name != of.name and any(facts.name == model for plane in other.planes for facts in plane.models):
            yield from (Use(other, home) for home in homes(other, model) if _key(home.server.location) == key)


def _key(location: Location) -> tuple[str, ...]:
    if isinstance(location, ObjectStoreLocation):
        return (location.url.rstrip("/"),)
    return location.volume, location.path.strip("/")
