"""The decision about every call: from memory, or by authenticating the caller and applying the access rules."""

import asyncio
import ssl
import time
from collections.abc import Callable
from weakref import WeakValueDictionary

from tidegate_contracts.routing import API_KEYS, AccessTable, Action, OidcIssuer

from ..concurrency import InFlightCount
from ..kinds import KINDS
from ..problems import Problem, ProblemType, other_protocol
from ..routes import Route, Routes
from ..server_kind import ServerKind
from ..settings import Tunables
from ..targets import GrantKey
from .api_keys import ApiKeys
from .identity import TAIL, Credential, Grant, Identity, IdentityCache, RefusalCache
from .jwks import IssuerKeys
from .limits import RateLimiter
from .rules import Rules
from .trust import Issuer, Trust
from .web_client import Domino, WebClient

TEND_SECONDS = 1.0  # Seconds between two checks for expired entries and for keys to fetch.
_SCANNED = 1024  # Identities and buckets per check, so that no request waits for it.
_NO_KEYS: ApiKeys = {}


class Authorizer:
    """Decides for one event loop: between two awaits nothing changes, so every decision uses one state."""

    def __init__(
        self,
        access: AccessTable,
        routes: Routes,
        keys: ApiKeys = _NO_KEYS,
        *,
        tunables: Tunables = Tunables(),
        domino_principal_url: str | None = None,
        replicas: int = 1,
        web: WebClient | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identities = IdentityCache()
        self.refusals = RefusalCache()
        self.limits, self._token_limits = RateLimiter(), RateLimiter()
        self.generation = 0  # Counts the states of rules, routes and keys: decisions of another state are void.
        self._replicas = replicas
        self._in_flight: WeakValueDictionary[tuple[str, str], InFlightCount] = WeakValueDictionary()
        """The calls in progress of each principal, for as long as one of its identities is remembered."""
        self._tunables, self._wall, self._clock = tunables, wall, clock
        self._web = web or WebClient()
        self._find = self.identities.by_tail.get
        self._domino = Domino(domino_principal_url, self._web, wall) if domino_principal_url else None
        self._refreshes: set[asyncio.Task[None]] = set()
        self._trust = Trust({}, _NO_KEYS, self._domino, wall)
        self.replace(access, routes, keys)

    def known(self, credential: Credential, key: GrantKey) -> Grant | None:
        """Return a remembered grant that is still valid. None if the caller must use `ask`."""
        identity = self._find(credential[-TAIL:])
        if identity is None or identity.credential != credential or identity.generation != self.generation:
            return None
        return identity.grants.get(key) if identity.expires > self._wall() else None

    def granted(self, identity: Identity, key: GrantKey) -> Grant | None:
        """Return the same for a caller whose identity is `remembered`."""
        return identity.grants.get(key) if identity.generation == self.generation else None

    def remembered(self, credential: Credential) -> Identity | None:
        """Return a remembered identity that is still valid. None if the caller must use `identify`."""
        identity = self._find(credential[-TAIL:])
        if identity is None or identity.credential != credential or identity.expires <= self._wall():
            return None
        return identity

    async def ask(
        self, credential: Credential, server: str | None, model: str, action: Action, kind: str | None = None
    ) -> Grant:
        """Return a grant. Raises Problem (unauthenticated, denied, unknown, malformed, busy). `kind` is the kind of
        server whose protocol the call uses. A model on a server of another kind is a Problem."""
        identity = await self.identify(credential)
        spoken = None if kind is None else KINDS[kind]
        route = self._decide(identity, server, model, action, spoken)
        if spoken is not None and route.kind is not spoken:
            raise other_protocol(route.server)
        bucket = tokens = None
        if action == "infer":
            key, now = (identity.principal.source, identity.principal.name, route.server, route.name), self._clock()
            bucket = self.limits.bucket(key, now)
            if self._access.rate_limit.tokens_per_minute is not None and route.kind.usage_of is not None:
                tokens = self._token_limits.bucket(key, now)
        grant = Grant(identity, route, bucket, tokens)
        self.identities.grant(identity, (server, model, action, kind), grant)
        return grant

    async def identify(self, credential: Credential) -> Identity:
        """Return a caller's identity. Raises Problem (unauthenticated, or busy if it cannot be checked now)."""
        while True:
            now = self._wall()
            identity = self.identities.find(credential)
            if identity is not None and identity.expires > now:
                if identity.generation != self.generation:
                    self.identities.clear(identity)
                    identity.generation = self.generation
                return identity
            self.refusals.check(credential, self._clock())
            trust = self._trust
            try:
                judged = trust.believe(credential)
                found = judged if isinstance(judged, Identity) else await judged()
            except Problem as problem:
                if trust is not self._trust:
                    continue
                if problem.type is ProblemType.UNAUTHENTICATED and credential:
                    self.refusals.add(credential, problem.detail, self._clock())
                raise
            if found is not None and trust is self._trust:  # otherwise the tables changed meanwhile
                found.generation = self.generation
                owner = found.principal.source, found.principal.name
                found.in_flight = self._in_flight.setdefault(owner, found.in_flight)
                self.identities.remember(credential, found)
                return found

    def permits(self, identity: Identity, route: Route, action: Action) -> bool:
        return self._rules.of(identity.principal).allow(action, route.server, route.name)

    def replace(self, access: AccessTable, routes: Routes, keys: ApiKeys, rules: Rules | None = None) -> None:
        """Use other tables from now on. Callers whose source is unchanged stay authenticated. Reading many rules takes
        long, so `build_rules` reads them beforehand in a thread."""
        before = self._trust
        issuers = {}
        for config in access.issuers:
            old = before.issuers.get(config.issuer)
            same = old is not None and old.config.jwks_url == config.jwks_url
            issuers[config.issuer] = Issuer(config, old.keys if old is not None and same else self._keys_of(config))
        changed = {name for name, old in before.issuers.items() if issuers.get(name) != old}
        if keys != before.api_keys:
            changed.add(API_KEYS)
        self._trust = Trust(issuers, keys, self._domino, self._wall)
        self._rules = rules if rules is not None else Rules(access.rules)
        self._routes = routes
        self._access = access
        self.generation += 1
        self.refusals.clear()
        if changed:
            self.identities.forget_sources(changed)
        self._change_limits()

    async def trust_authorities(self, context: ssl.SSLContext) -> None:
        """Use other certificate authorities for issuers and Domino. Retry failed issuers at once."""
        self._web.trust(context)
        for issuer in self._trust.issuers.values():
            issuer.keys.retry()

    def set_replicas(self, replicas: int) -> None:
        """Set the number of proxy replicas that share the rate limits."""
        if replicas != self._replicas:
            self._replicas = replicas
            self._change_limits()
            self.generation += 1  # so that grants look up their buckets again, which then use the new limits

    async def tend(self, seconds: float = TEND_SECONDS) -> None:
        """Fetch keys before they are old and forget expired entries, for ever."""
        while True:
            for issuer in self._trust.issuers.values():
                if issuer.keys.due:
                    task = asyncio.get_running_loop().create_task(issuer.keys.refresh())
                    self._refreshes.add(task)
                    task.add_done_callback(self._refreshes.discard)
            self.sweep()
            await asyncio.sleep(seconds)

    def keys_trusted(self) -> dict[str, float]:
        """Return, by issuer, for how many more seconds its keys are trusted if it stops responding."""
        return {name: max(0.0, issuer.keys.trust_left) for name, issuer in self._trust.issuers.items()}

    def sweep(self) -> None:
        """Look at some remembered entries and forget the expired ones."""
        self.identities.sweep(self._wall(), self.generation, _SCANNED)
        self.limits.forget_idle(self._clock(), _SCANNED)
        self._token_limits.forget_idle(self._clock(), _SCANNED)

    async def close(self) -> None:
        if self._domino is not None:
            await self._domino.close()
        for issuer in self._trust.issuers.values():
            await issuer.keys.close()
        await self._web.close()

    def _change_limits(self) -> None:
        limit = self._access.rate_limit
        self.limits.change(limit.requests_per_minute, limit.burst, self._replicas)
        tokens = limit.tokens_per_minute or 1  # the burst is one minute's tokens. Without a limit no bucket is used
        self._token_limits.change(tokens, tokens, self._replicas)

    def _decide(
        self, identity: Identity, server: str | None, model: str, action: Action, kind: ServerKind | None
    ) -> Route:
        found = self._routes.find(server, model)
        routes = [route for route in found if route.kind is kind] or found
        usable = [route for route in routes if self.permits(identity, route, action)]
        if len(usable) == 1:
            return usable[0]
        if usable:
            names = ", ".join(sorted(route.server for route in usable))
            raise Problem(ProblemType.MALFORMED, f"Several servers have the model {model}: name one of {names}.")
        other: Action = "inspect" if action == "infer" else "infer"
        seen = sorted(route.server for route in routes if self.permits(identity, route, other))
        if seen:
            raise Problem(
                ProblemType.DENIED,
                f"{identity.principal.name} may {other} the model {model} of the server {seen[0]}, but not {action}. "
                f"An admin must add an access rule with the action {action} for this principal or one of its groups.",
            )
        where = "" if server is None else f" of the server {server}"
        raise Problem(ProblemType.UNKNOWN, f"There is no model {model}{where}, or you have no access to it.")

    def _keys_of(self, config: OidcIssuer) -> IssuerKeys:
        changed, pause = self._keys_changed, self._tunables.key_pause_seconds
        return IssuerKeys(config.issuer, config.jwks_url, self._web, changed, self._clock, self._wall, pause)

    def _keys_changed(self, issuer: str, fewer: bool) -> None:
        """Forget refusals, because a new key can verify more tokens, and identities if a key is gone."""
        self.refusals.clear()
        if fewer:
            self.identities.forget_sources({issuer})
