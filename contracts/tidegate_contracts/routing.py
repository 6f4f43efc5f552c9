"""The routing table (servers, pools and models) and the access table.

The stack definition produces them, a ConfigMap carries them, the proxy follows them. Field names on the wire are
camelCase. Unknown fields are refused, because a proxy must not half understand a newer table.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from .message import Message
from .proxy_process import PATH_PATTERN

VERSION: Final = 1

Action = Literal["infer", "inspect"]
API_KEYS: Final = "api-keys"
DOMINO: Final = "domino"  # With API_KEYS, the sources of identities that are not issuers of tokens.

Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9_:-]{0,62}(\.[A-Za-z0-9_:-]{1,63})*\.?$", max_length=253)]
"""A DNS name, or an address."""
Port = Annotated[int, Field(ge=1, le=65535)]


class Pool(Message):
    """Replicas of one server on one kind of slice. `host` is the headless Service that lists them."""

    name: str
    host: Host
    """Its addresses change with readiness. A pod whose eviction policy crashed leaves it for up to five minutes (the
    kubelet's back-off) while its server still responds. So the proxy keeps an address for as long as it responds."""
    http_port: Port
    grpc_port: Port | None = None  # Only for kinds of servers that speak KServe v2.
    grpc_tls: bool = False
    live_path: Annotated[str, Field(pattern=PATH_PATTERN)] | None = None
    """The path at which a replica returns 200 unless it hangs. Default: the path of its kind."""
    loading: Literal["preload", "on-demand"]
    empty: bool | None = None  # Whether it is meant to have no replica now, which is then not reported.
    wake_seconds: Annotated[int, Field(ge=1)] | None = None
    """The pool can have no replica while it gets no calls. A call that starts one waits for at most so long."""
    lease_port: Port | None = None  # Port of the eviction policy of each replica. Only for on-demand pools.


class Server(Message):
    """One logical inference server. `kind` names its protocol."""

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


class ServedModel(Message):
    """The place of a model, and the shares of its versions. By default, only the newest version gets traffic."""

    name: str
    server: str
    pool: str
    versions: tuple[VersionShare, ...] = ()
    alias: str | None = None
    footprint_bytes: int | None = None
    served_names: tuple[str, ...] | None = None
    """Other names for calls, if the request's body names the model: `openai.is_served_name`."""


class Model(ServedModel):
    """The proxy's entry of a model in one pool of its server. If versions have separate pools, each has one: see
    `whole`."""

    idle_seconds: int | None = None
    pinned: bool = False

    @model_validator(mode="after")
    def _one_thing_decides(self) -> Self:
        if self.versions and self.alias is not None:
            raise ValueError(f"model {self.name} has both shares of versions and an alias: remove one of them")
        return self


def whole(parts: Sequence[Model]) -> None:
    """Check that the entries of one model on one server form one model, in any number of pools. Raises ValueError."""
    first, *others = parts
    if others and not all(part.versions for part in parts):
        raise ValueError(f"model {first.name} is listed twice on server {first.server}")
    _once(f"model {first.name} is in the pool", (part.pool for part in parts))
    shares = [share for part in parts for share in part.versions]
    _once(f"model {first.name} has the version", (str(share.version) for share in shares))
    if shares and (total := sum(share.weight for share in shares)) != 100:
        raise ValueError(f"the shares of model {first.name}'s versions must sum to 100, but sum to {total}")


class RoutingTable(Message):
    """The content of `routing.json`: an environment's servers and models."""

    version: Literal[1] = VERSION
    environment: str
    servers: tuple[Server, ...]
    models: tuple[Model, ...]

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        _once("the table has the server", (server.name for server in self.servers))
        parts: dict[tuple[str, str], list[Model]] = {}
        for model in self.models:
            parts.setdefault((model.server, model.name), []).append(model)
        places = Places(self.servers)
        for each in parts.values():
            places.check(each)
        return self


class Places:
    """The pools in which models can be."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._pools = {(server.name, pool.name) for server in servers for pool in server.pools}

    def check(self, parts: Sequence[Model]) -> None:
        """Check the entries of one model on one server. Raises ValueError."""
        for part in parts:
            if (part.server, part.pool) not in self._pools:
                where = f"{part.server}/{part.pool}, a pool that the table does not have"
                raise ValueError(f"model {part.name} is in {where}")
        whole(parts)


def _once(what: str, names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{what} {twice} twice")


class AccessRule(Message):
    """Grants `actions` on matching servers and models to the named principals and groups. Globs are fnmatch's."""

    name: str
    principals: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    actions: tuple[Action, ...]
    servers: tuple[str, ...]
    models: tuple[str, ...]
    source: str | None = None
    """Required source of the caller: the URL of an issuer, `api-keys` or `domino`. Without it, any trusted source. Two
    sources can use the same name, such as `ci`, for different callers."""


class OidcIssuer(Message):
    """An identity provider whose tokens the proxy accepts."""

    issuer: str
    audiences: tuple[str, ...]
    jwks_url: str | None = None  # None: found by OpenID discovery.
    groups_claim: str


class RateLimit(Message):
    """Requests a minute that one principal can send to one model, over all replicas of the proxy."""

    requests_per_minute: Annotated[int, Field(ge=1)]
    burst: Annotated[int, Field(ge=1)]
    tokens_per_minute: Annotated[int, Field(ge=1)] | None = None
    """Tokens a minute, of prompts and completions together, if servers report them (`usage`)."""


class AccessTable(Message):
    """`access.json`: only what a rule grants is allowed."""

    version: Literal[1] = VERSION
    issuers: tuple[OidcIssuer, ...] = ()
    rules: tuple[AccessRule, ...] = ()
    rate_limit: RateLimit
