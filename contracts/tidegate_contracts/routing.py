"""The routing table: which servers, pools and models there are, and who may use them.

The stack definition produces it, a ConfigMap carries it, the proxy follows it. Field names on the wire are camelCase.
Unknown fields are refused, so that a table of a newer version is not half understood.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from .message import Message

VERSION: Final = 1

Action = Literal["infer", "inspect"]


class Pool(Message):
    """Replicas of one server on one kind of slice; `host` is the headless Service that lists them."""

    name: str
    host: str
    """Its addresses come and go with readiness. A pod whose eviction policy crashed leaves it for up to five minutes
    (the kubelet's back-off) while its Triton still answers: so who follows this name keeps an address that it has known
    for as long as it answers, and gives it up when it does not."""
    http_port: int
    grpc_port: int
    grpc_tls: bool = False
    loading: Literal["preload", "on-demand"]
    lease_port: int | None = None
    """Port of the eviction policy beside each replica; only on-demand pools have one."""


class Server(Message):
    """One logical inference server; `kind` names the contract it speaks."""

    name: str
    kind: str
    pools: tuple[Pool, ...]


class VersionShare(Message):
    """A share of a model's traffic, in per cent."""

    version: int
    weight: Annotated[int, Field(ge=0, le=100)]


class Mirror(Message):
    """A candidate version that gets copies of a share of a model's requests; what it answers is dropped."""

    version: int
    percent: Annotated[int, Field(ge=1, le=100)]


class Model(Message):
    """One model: where it is served, and which versions get how much of its traffic.

    Neither `versions` nor `alias` means the newest version that the server has.
    """

    name: str
    server: str
    pool: str
    versions: tuple[VersionShare, ...] = ()
    alias: str | None = None
    mirror: Mirror | None = None
    idle_seconds: int | None = None
    pinned: bool = False
    footprint_bytes: int | None = None


class RoutingTable(Message):
    """`routing.json`."""

    version: Literal[1] = VERSION
    environment: str
    servers: tuple[Server, ...]
    models: tuple[Model, ...]


class AccessRule(Message):
    """Grants `actions` on matching servers and models to the named principals and groups; globs are fnmatch's."""

    name: str
    principals: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    actions: tuple[Action, ...]
    servers: tuple[str, ...]
    models: tuple[str, ...]


class OidcIssuer(Message):
    """An identity provider whose tokens the proxy accepts."""

    issuer: str
    audiences: tuple[str, ...]
    jwks_url: str | None = None
    """Found by OpenID discovery without it."""
    groups_claim: str


class RateLimit(Message):
    """Requests a minute that one principal may send to one model, over all replicas of the proxy."""

    requests_per_minute: int
    burst: int


class AccessTable(Message):
    """`access.json`: nothing is allowed that no rule grants."""

    version: Literal[1] = VERSION
    issuers: tuple[OidcIssuer, ...] = ()
    rules: tuple[AccessRule, ...] = ()
    rate_limit: RateLimit
