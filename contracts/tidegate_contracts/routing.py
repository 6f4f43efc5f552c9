"""The routing table: which servers, pools and models there are, and who may use them.

The stack definition produces it, a ConfigMap carries it, the proxy follows it. Field names on the wire are camelCase.
Unknown fields are refused, so that a table of a newer version is not half understood.
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
DOMINO: Final = "domino"  # The sources of identities that are no issuers of tokens, in access rules.

Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9_:][A-Za-z0-9_:-]{0,62}(\.[A-Za-z0-9_:-]{1,63})*\.?$", max_length=253)]
"""A name that can be looked up, or an address."""
Port = Annotated[int, Field(ge=1, le=65535)]


class Pool(Message):
    """Replicas of one server on one kind of slice; `host` is the headless Service that lists them."""

    name: str
    host: Host
    """Its addresses come and go with readiness. A pod whose eviction policy crashed leaves it for up to five minutes
    (the kubelet's back-off) while its server still answers: so an address is kept for as long as it answers."""
    http_port: Port
    grpc_port: Port | None = None  # Only kinds of servers that speak KServe v2 have one.
    grpc_tls: bool = False
    live_path: Annotated[str, Field(pattern=PATH_PATTERN)] | None = None
    """Where a replica answers 200 for as long as it is not hung, where that is elsewhere than its kind has it."""
    loading: Literal["preload", "on-demand"]
    empty: bool | None = None  # Whether it is meant to have no replica now: then nobody is told that it has none.
    wake_seconds: Annotated[int, Field(ge=1)] | None = None
    """It may have no replica while nobody calls, and a call brings one: so long it waits for that."""
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


class ServedModel(Message):
    """Where a model is served, and which versions get how much of its traffic; by default, the newest alone."""

    name: str
    server: str
    pool: str
    versions: tuple[VersionShare, ...] = ()
    alias: str | None = None
    footprint_bytes: int | None = None
    served_names: tuple[str, ...] | None = None
    """Further names by which it can be called, where the request's body names it: `openai.is_served_name`."""


class Model(ServedModel):
    """What the proxy is told of a model in one pool of its server.

    Where versions have pools of their own, it stands once for each of them, with the versions there: see `whole`.
    """

    idle_seconds: int | None = None
    pinned: bool = False

    @model_validator(mode="after")
    def _one_thing_decides(self) -> Self:
        if self.versions and self.alias is not None:
            raise ValueError(f"model {self.name} has shares of versions and an alias: one of them decides, say which")
        return self


def whole(parts: Sequence[Model]) -> None:
    """Check that what stands of one model on one server is one model, in however many pools; raises ValueError."""
    first, *others = parts
    if others and not all(part.versions for part in parts):
        raise ValueError(f"model {first.name} stands twice on server {first.server}")
    _once(f"model {first.name} is in the pool", (part.pool for part in parts))
    shares = [share for part in parts for share in part.versions]
    _once(f"model {first.name} has the version", (str(share.version) for share in shares))
    if shares and (total := sum(share.weight for share in shares)) != 100:
        raise ValueError(f"the shares of model {first.name}'s versions must sum to 100, and they sum to {total}")


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
    """Where models can be: in pools that are there."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._pools = {(server.name, pool.name) for server in servers for pool in server.pools}

    def check(self, parts: Sequence[Model]) -> None:
        """Check what stands of one model on one server; raises ValueError."""
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
