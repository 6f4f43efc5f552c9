"""Who a caller is, for as long as the proof holds."""

from dataclasses import dataclass, field

from ..concurrency import InFlightCount
from ..routes import Route
from .limits import TokenBucket

Credential = bytes
"""What a caller sent to say who it is, as one value: an `Authorization` header's value, or that of `X-API-Key` or
`X-Domino-Api-Key` after the header's lower-case name and a space. Empty for a caller who said nothing."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller, as rules and limits see it."""

    name: str
    """`sub` of a token, or the principal of an API key."""
    groups: frozenset[str]
    source: str
    """Who vouches for it: an issuer's URL, `api-keys` or `domino`."""


@dataclass(slots=True)
class Identity:
    """A principal as one credential proved it, and what was found out about its rights since."""

    principal: Principal
    expires: float
    """When the credential ends: seconds of wall-clock time (`exp` of a token), infinity for an API key."""
    grants: "dict[tuple[str | None, str, str], Grant]" = field(default_factory=dict, repr=False)
    """What is granted, by server asked for (or None), model and action; bounded by the authorizer."""
    credential: Credential = field(default=b"", repr=False)
    """What proved it; never shown."""
    generation: int = 0
    """Which state of rules and routes `grants` belongs to; in any other state they are void."""
    in_flight: InFlightCount = field(default_factory=InFlightCount, repr=False)
    """Its calls under way; one object for all credentials of a principal."""


@dataclass(slots=True)
class Grant:
    """Leave for one principal to do one thing with one model, for as long as its identity holds."""

    identity: Identity
    route: Route
    bucket: TokenBucket | None
    """RateLimiter its requests; None for what is not limited (inspecting)."""
