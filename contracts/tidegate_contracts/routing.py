"""The routing table: which servers, pools and models there are, and who may use them.

The stack definition produces it, a ConfigMap carries it, the proxy follows it. Field names on the wire are camelCase.
Unknown fields are refused, so that a table of a newer version is not half understood.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from .message import Message
from .proxy_process import PATH_PATTERN

VERSION: Final = 1

Action = Literal["infer", "inspect"]
API_KEYS: Final = "api-keys"
DOMINO: Final = "domino"  # The sources of identities that are no issuers of tokens, in access rules.

Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9_:-]{0,62}(\.[A-Za-z0-9_:-]{1,63})*\.?$", max_length=253)]
"""A name that can be looked up, or an address."""
Port = Annotated[int, Field(ge=1, le=65535)]


class Pool(Message):
    """Replicas of one server on one kind of slice; `host` is the headless Service that lists them."""

    name: str
    host: Host
    """Its addresses come and go with readiness. A pod whose eviction policy crashed leaves it for up to five minutes
    (the kubelet's back-off) while its Triton still answers: so an address is kept for as long as it answers."""
    http_port: Port
    grpc_port: Port | None = None  # Only kinds of servers that speak KServe v2 have one.
    grpc_tls: bool = False
    live_path: Annotated[str, Field(pattern=PATH_PATTERN)] | None = None
    """Where a replica answers 200 for as long as it is not hung, where that is elsewhere than its kind has it."""
    loading: Literal["preload", "on-demand"]
    empty: bool | None = None  # Whether it is meant to have no replica now: then nobody is told that it has none.
    lease_port: Port | None = None  # Port of the eviction policy beside each replica; only on-demand pools have one.


class Server(Message):
    """One logical inference server; `kind` names the contract it speaks."""

    name: str
    kind: str
    pools: tuple[Pool, ...]

    @model_validator(mode="after")
    def _names_pools_once(self) -> Self:
        _once(f"server {self.name} has the pool", (pool.name for pool in self.pools))
        return self


class VersionShare(Message):
    """A share of a model's traffic, in per cent."""

    version: int
    weight: Annotated[int, Field(ge=0, le=100)]


class Mirror(Message):
    """A candidate version that gets copies of a share of a model's requests; what it answers is dropped."""

    version: int
    percent: Annotated[int, Field(ge=1, le=100)]


class ServedModel(Message):
    """Where a model is served, and which versions get how much of its traffic; by default, the newest alone."""

    name: str
    server: str
    pool: str
    versions: tuple[VersionShare, ...] = ()
    alias: str | None = None
    mirror: Mirror | None = None
    footprint_bytes: int | None = None


class Model(ServedModel):
    """What the proxy is told of a model."""

    idle_seconds: int | None = None
    pinned: bool = False

    @model_validator(mode="after")
    def _shares_are_whole(self) -> Self:
        if self.versions and self.alias is not None:
            raise ValueError(f"model {self.name} has shares of versions and an alias: one of them decides, say which")
        _once(f"model {self.name} has the version", (str(share.version) for share in self.versions))
        if self.versions and (total := sum(share.weight for share in self.versions)) != 100:
            raise ValueError(f"the shares of model {self.name}'s versions must sum to 100, and they sum to {total}")
        return self


class RoutingTable(Message):
    """The content of `routing.json`: an environment's servers and models."""

    version: Literal[1] = VERSION
    environment: str
    servers: tuple[Server, ...]
    models: tuple[Model, ...]

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        _once("the table has the server", (server.name for server in self.servers))
        places = Places(self.servers)
        for model in self.models:
            places.take(model.server, model.pool, model.name)
        return self


class Places:
    """Where models can be: in pools that are there, and each once on its server."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._pools = {(server.name, pool.name) for server in servers for pool in server.pools}
        self._taken: set[tuple[str, str]] = set()

    def take(self, server: str, pool: str, model: str) -> None:
        """Take a model's place; raises ValueError where there is none."""
        if (server, pool) not in self._pools:
            raise ValueError(f"model {model} is in {server}/{pool}, a pool that the table does not have")
        if (server, model) in self._taken:
            raise ValueError(f"model {model} stands twice on server {server}")
        self._taken.add((server, model))


def _once(what: str, names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{what} {twice} twice")


class AccessRule(Message):
    """Grants `actions` on matching servers and models to the named principals and groups; globs are fnmatch's."""

    name: str
    principals: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    actions: tuple[Action, ...]
    servers: tuple[str, ...]
    models: tuple[str, ...]
    source: str | None = None
    """What has to vouch for the caller: the URL of an issuer, `api-keys` or `domino`; any that is believed without it.
    Of two of them, each may call somebody else `ci`."""


class OidcIssuer(Message):
    """An identity provider whose tokens the proxy accepts."""

    issuer: str
    audiences: tuple[str, ...]
    jwks_url: str | None = None  # None: found by OpenID discovery.
    groups_claim: str


class RateLimit(Message):
    """Requests a minute that one principal may send to one model, over all replicas of the proxy."""

    requests_per_minute: Annotated[int, Field(ge=1)]
    burst: Annotated[int, Field(ge=1)]
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Tokens a minute, of prompts and completions together, where servers say what calls used (`usage`)."""


class AccessTable(Message):
    """`access.json`: nothing is allowed that no rule grants."""

    version: Literal[1] = VERSION
    issuers: tuple[OidcIssuer, ...] = ()
    rules: tuple[AccessRule, ...] = ()
    rate_limit: RateLimit
