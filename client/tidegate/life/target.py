"""Finds where an environment serves a model, and the repositories of those servers."""

from collections import defaultdict
from dataclasses import dataclass

from tidegate_contracts import environments as contract

from ..errors import NotFoundError, UsageError
from ..kinds import kind_of_server
from ..names import nearest_of
from ..server_kind import ServerKind

Key = tuple[str, ...]  # volume and path, or the URL: equal for the same repository


@dataclass(frozen=True)
class Placement:
    """One server that serves a model, in one environment and on one data plane."""

    environment: contract.Environment
    plane: contract.Plane
    server: contract.ServerFacts
    model: contract.ModelFacts

    @property
    def named(self) -> frozenset[int]:
        return frozenset(share.version for share in self.model.versions)

    @property
    def follows(self) -> str:
        """The rule that chooses the called version: `alias`, `shares` of versions, or `newest`."""
        if self.model.alias is not None:
            return "alias"
        return "shares" if self.model.versions or not self.kind.follows_repository else "newest"

    @property
    def kind(self) -> ServerKind:
        """The kind of its server. Raises UsageError if this client does not support it."""
        return kind_of_server(self.server.kind, self.server.name)

    @property
    def pool(self) -> contract.PoolFacts:
        """The pool that serves it. Raises UsageError if environments.json is inconsistent."""
        if (pool := next((pool for pool in self.server.pools if pool.name == self.model.pool), None)) is None:
            raise UsageError(f"the server {self.server.name} has no pool {self.model.pool}")
        return pool


@dataclass(frozen=True)
class Target:
    """A repository that the model is published to, and the placements that read it, on any data plane."""

    key: Key
    homes: tuple[Placement, ...]  # in the order of the rollout

    @property
    def kind(self) -> ServerKind:
        return self.homes[0].kind

    @property
    def model(self) -> str:
        return self.homes[0].model.name

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases that config.pbtxt sets to the environment's version."""
        return frozenset(home.model.alias for home in self.homes if home.model.alias is not None)

    @property
    def newest(self) -> bool:
        return any(home.follows == "newest" for home in self.homes)

    @property
    def named(self) -> frozenset[int]:
        return frozenset(number for home in self.homes for number in home.named)


def command_into(of: contract.Environment, model: str) -> str:
    """Return the command that deploys or promotes a model, or a version of it, to an environment."""
    return f"tidegate {'deploy' if of.promotion.source is None else 'promote'} {model} --to {of.name}"


def homes(of: contract.Environment, model: str | None = None) -> list[Placement]:
    """Return the placements of a model or of all models, lower waves first. Raises NotFoundError if there are none."""
    everywhere = [
        Placement(of, plane, server, facts)
        for plane in sorted(of.planes, key=lambda plane: plane.wave)
        for facts in plane.models
        for server in plane.servers
        if facts.server == server.name
    ]
    found = [home for home in everywhere if model in (None, home.model.name)]
    if model is not None and not found:
        near = nearest_of(model, sorted({home.model.name for home in everywhere}), "models")
        server = next((server.name for plane in of.planes for server in plane.servers), "<server>")
        why = "the stack definition lists the models of an environment and their servers"
        line = f"- {{name: {model}, server: {server}}}"
        do = f"{near}, or have the platform admin add it to `models` of the definition:\n      {line}"
        raise NotFoundError(f"the environment {of.name} has no model {model!r}", why=why, do=do)
    return found


def repositories(of: contract.Environment, model: str | None = None) -> dict[Key, list[Placement]]:
    """Return every repository that the environment reads a model, or any model, from, with its placements."""
    found: dict[Key, list[Placement]] = defaultdict(list)
    for home in homes(of, model):
        found[_key(home.server.location)].append(home)
    return found


def targets(of: contract.Environment, model: str) -> tuple[Target, ...]:
    """Return the repositories that the environment reads the model from, in the order of the rollout."""
    return tuple(Target(key, tuple(found)) for key, found in repositories(of, model).items())


def _key(location: contract.Location) -> Key:
    if isinstance(location, contract.ObjectStoreLocation):
        return (location.url.rstrip("/"),)
    return location.volume, location.path.strip("/")
