"""The proxy's routing and access tables."""

from tidegate_contracts import eviction_process, routing, triton

from ..definition.base import byte_count
from ..definition.models import Model
from ..definition.servers import OnDemand, Pool, Server
from ..stack import Stack
from . import names


def routing_table(stack: Stack) -> routing.RoutingTable:
    """Return which servers, pools and models there are."""
    return routing.RoutingTable(
        environment=stack.environment.name,
        servers=tuple(
            routing.Server(
                name=server.name, kind=server.kind, pools=tuple(_pool(stack, server, pool) for pool in server.pools)
            )
            for server in stack.platform.servers
        ),
        models=tuple(
            _model(model, server, pool)
            for server in stack.platform.servers
            for pool in server.pools
            for model in stack.models_of(server, pool)
        ),
    )


def access_table(stack: Stack) -> routing.AccessTable:
    """Return who may do what."""
    proxy = stack.platform.proxy
    return routing.AccessTable(
        issuers=tuple(
            routing.OidcIssuer(
                issuer=issuer.issuer,
                audiences=issuer.audiences,
                jwks_url=issuer.jwks_url,
                groups_claim=issuer.groups_claim,
            )
            for issuer in proxy.auth.oidc
        ),
        rules=tuple(
            routing.AccessRule(
                name=rule.name,
                principals=rule.principals,
                groups=rule.groups,
                actions=rule.actions,
                servers=rule.servers,
                models=rule.models,
            )
            for rule in proxy.access
        ),
        rate_limit=routing.RateLimit(
            requests_per_minute=proxy.rate_limit.requests_per_minute, burst=proxy.rate_limit.burst
        ),
    )


def _pool(stack: Stack, server: Server, pool: Pool) -> routing.Pool:
    on_demand = isinstance(pool.loading, OnDemand)
    return routing.Pool(
        name=pool.name,
        host=f"{names.headless_name(server, pool)}.{stack.namespace}.svc",
        http_port=triton.HTTP_PORT,
        grpc_port=triton.GRPC_PORT,
        grpc_tls=server.triton.grpc_tls is not None,
        loading=pool.loading.mode,
        lease_port=eviction_process.LEASE_PORT if on_demand else None,
    )


def _model(model: Model, server: Server, pool: Pool) -> routing.Model:
    idle_seconds = model.idle_seconds
    if idle_seconds is None and isinstance(pool.loading, OnDemand):
        idle_seconds = pool.loading.idle_seconds
    return routing.Model(
        name=model.name,
        server=server.name,
        pool=pool.name,
        versions=tuple(routing.VersionShare(version=share.version, weight=share.weight) for share in model.versions),
        alias=model.alias,
        idle_seconds=idle_seconds,
        pinned=model.pinned,
        footprint_bytes=byte_count(model.footprint) if model.footprint else None,
    )
