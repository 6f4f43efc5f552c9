"""The files that pods read: the proxy's routing and access tables, and the settings of an eviction policy.

Their words are those of `tidegate_contracts.routing` and `tidegate_contracts.eviction`, as they go over the wire.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidegate_contracts import eviction, eviction_process, routing, triton
from tidegate_contracts.proxy_settings import variable

from .domino import DominoArgs
from .gpu_placement import DraArgs, MigArgs, models_share
from .place import PROXY_HEADLESS, Place, pool_headless_name
from .proxy_args import ProxyArgs
from .triton_server import (
    ModelArgs,
    ObjectStoreRepositoryArgs,
    OnDemandArgs,
    TritonPoolArgs,
    TritonServerArgs,
    WarmWindowArgs,
)
from .values import either, flat, joined, listed, merged, needed, of_kind, present, when, where

Made = TypeVar("Made")
Tree = dict[str, Any]


def routing_table(place: Place, servers: Sequence[TritonServerArgs]) -> Tree:
    """Return which servers, pools and models there are."""
    return {
        "version": routing.VERSION,
        "environment": place.environment,
        "servers": listed(
            servers,
            lambda server: {
                "name": server.name,
                "kind": server.kind,
                "pools": listed(server.pools, lambda pool: _pool(place, server, pool)),
            },
        ),
        "models": flat(
            listed(
                servers,
                lambda server: flat(
                    listed(server.pools, lambda pool: listed(pool.models, lambda model: _model(server, pool, model)))
                ),
            )
        ),
    }


def eviction_settings(server: TritonServerArgs, pool: TritonPoolArgs, loading: OnDemandArgs) -> Tree:
    """Return what the eviction policy of a pool is told."""
    return {
        "version": eviction.VERSION,
        "policy": loading.policy,
        "repository": repository_root(server, lambda root: root),
        "grpcTls": present(server.triton.grpc_tls),
        "capacityBytes": either(loading.capacity_bytes, lambda capacity: capacity, lambda: _of_slice(pool, loading)),
        "idleSeconds": loading.idle_seconds,
        "leaseSeconds": loading.lease_seconds,
        "waitSeconds": loading.wait_seconds,
        "models": listed(pool.models, _managed_model),
        "warmWindows": listed(loading.warm_windows, _warm_window),
    }


def _of_slice(pool: TritonPoolArgs, loading: OnDemandArgs) -> int:
    """Return what of a MIG slice models may take; elsewhere nothing tells how much there is."""
    why = "capacityBytes is needed where no MIG profile tells how much memory there is"
    return of_kind(
        pool.placement,
        MigArgs,
        lambda mig: models_share(mig.profile),
        lambda: of_kind(
            pool.placement,
            DraArgs,
            lambda claim: models_share(needed(claim.profile, why)),
            lambda: needed(loading.capacity_bytes, why),
        ),
    )


def repository_root(server: TritonServerArgs, make: Callable[[str], Made]) -> Made | None:
    """Return what `make` makes of where Triton finds the models: where the volume is mounted, or a URL."""
    return of_kind(
        server.repository,
        ObjectStoreRepositoryArgs,
        lambda bucket: make(bucket.url),
        lambda: make(triton.REPOSITORY_ROOT),
    )


def _pool(place: Place, server: TritonServerArgs, pool: TritonPoolArgs) -> Tree:
    return {
        "name": pool.name,
        "host": f"{pool_headless_name(server.name, pool.name)}.{place.namespace}.svc",
        "httpPort": triton.HTTP_PORT,
        "grpcPort": triton.GRPC_PORT,
        "grpcTls": present(server.triton.grpc_tls),
        "loading": pool.loading.mode,
        "leasePort": of_kind(pool.loading, OnDemandArgs, lambda _: eviction_process.LEASE_PORT),
    }


def _model(server: TritonServerArgs, pool: TritonPoolArgs, model: ModelArgs) -> Tree:
    return {
        "name": model.name,
        "server": server.name,
        "pool": pool.name,
        "versions": listed(model.versions, lambda share: {"version": share.version, "weight": share.weight}),
        "alias": model.alias,
        "mirror": when(model.mirror, lambda mirror: {"version": mirror.version, "percent": mirror.percent}),
        "idleSeconds": either(
            model.idle_seconds,
            lambda seconds: seconds,
            lambda: of_kind(pool.loading, OnDemandArgs, lambda loading: loading.idle_seconds),
        ),
        "pinned": model.pinned,
        "footprintBytes": model.footprint_bytes,
    }


def _managed_model(model: ModelArgs) -> Tree:
    return {
        "name": model.name,
        "idleSeconds": model.idle_seconds,
        "pinned": model.pinned,
        "footprintBytes": model.footprint_bytes,
        # Versions without traffic need not be loaded.
        "versions": joined(
            listed(model.versions, lambda share: where(share.weight, lambda: share.version)),
            when(model.mirror, lambda mirror: [mirror.version]),
        ),
        "alias": model.alias,
    }


def _warm_window(window: WarmWindowArgs) -> Tree:
    return {
        "name": window.name,
        "opens": window.opens,
        "durationSeconds": window.duration_seconds,
        "timeZone": window.time_zone,
        "models": window.models,
    }


def access_table(proxy: ProxyArgs) -> Tree:
    """Return who may do what."""
    return {
        "version": routing.VERSION,
        "issuers": listed(
            proxy.auth.oidc,
            lambda issuer: {
                "issuer": issuer.issuer,
                "audiences": issuer.audiences,
                "jwksUrl": issuer.jwks_url,
                "groupsClaim": issuer.groups_claim,
            },
        ),
        "rules": listed(
            proxy.access,
            lambda rule: {
                "name": rule.name,
                "principals": rule.principals,
                "groups": rule.groups,
                "source": rule.source,
                "actions": rule.actions,
                "servers": rule.servers,
                "models": rule.models,
            },
        ),
        "rateLimit": {
            "requestsPerMinute": proxy.rate_limit.requests_per_minute,
            "burst": proxy.rate_limit.burst,
        },
    }


def proxy_settings(proxy: ProxyArgs, place: Place, domino: DominoArgs | None) -> Tree | None:
    """Return the settings of the proxy that are no files: `tidegate_contracts.proxy_settings.ProxySettings`."""
    return merged(
        {
            variable("environment"): place.environment,
            variable("replicas_host"): f"{PROXY_HEADLESS}.{place.namespace}.svc",
            variable("body_limit_bytes"): f"{proxy.body_limit_bytes}",
            variable("concurrency"): f"{proxy.concurrency}",
            variable("connect_timeout_seconds"): f"{proxy.timeouts.connect_seconds}",
            variable("request_timeout_seconds"): f"{proxy.timeouts.request_seconds}",
            variable("drain_seconds"): f"{proxy.timeouts.drain_seconds}",
            variable("log_level"): proxy.log_level,
            variable("tls"): either(proxy.tls, lambda _: "true", lambda: "false"),
            variable("api_keys"): either(proxy.auth.api_keys, lambda _: "true", lambda: "false"),
        },
        when(
            proxy.tracing,
            lambda tracing: {
                variable("otlp_endpoint"): tracing.endpoint,
                variable("trace_percent"): f"{tracing.percent}",
            },
        ),
        when(
            domino,
            lambda found: where(
                proxy.auth.domino_principal,
                lambda: {variable("domino_principal_url"): _principal_url(found)},
            ),
        ),
    )


def _principal_url(domino: DominoArgs) -> str:
    return f"http://nucleus-frontend.{domino.platform_namespace}:80/v4/auth/principal"
