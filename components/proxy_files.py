"""The files of the proxy: its settings, and the routing and access tables of `tidegate_contracts.routing`."""

from collections.abc import Sequence
from typing import Any

from tidegate_contracts import eviction_process, openai, routing, triton
from tidegate_contracts.proxy_settings import variable

from stacks.definition.environment import Domino
from stacks.definition.models import Model
from stacks.definition.pools import OnDemand, QueueScaling
from stacks.definition.proxy import HttpRouteExposure, IngressExposure

from .args import OpenaiServerArgs, PoolArgs, ProxyArgs, ServerArgs, TritonServerArgs, by_kind, external_name
from .naming import PROXY_HEADLESS, Naming, pool_headless_name
from .openai.engines import by_engine
from .openai.frontends import service_of
from .values import (
    either,
    equals,
    flat,
    if_true,
    in_bytes,
    listed,
    merged,
    none_if_empty,
    of_kind,
    picked,
    present,
    when,
)

Tree = dict[str, Any]


def routing_table(naming: Naming, servers: Sequence[ServerArgs]) -> Tree:
    """Return the table of servers, pools and models."""
    return {
        "version": routing.VERSION,
        "environment": either(naming.called, lambda name: name, lambda: naming.environment),
        "servers": listed(
            servers,
            lambda server: {
                "name": external_name(server, _same),
                "kind": server.kind,
                "pools": by_kind(
                    server,
                    lambda server: listed(server.pools, lambda pool: _triton_pool(naming, server, pool)),
                    lambda server: listed(server.pools, lambda pool: _openai_pool(naming, server, pool)),
                ),
            },
        ),
        "models": flat(
            servers,
            lambda server: flat(
                server.pools, lambda pool: listed(pool.models, lambda model: _model(server, pool, model))
            ),
        ),
    }


def _same(name: str) -> str:
    return name


def _triton_pool(naming: Naming, server: TritonServerArgs, pool: PoolArgs) -> Tree:
    return {
        **_pool(pool),
        "host": f"{pool_headless_name(server.name, pool.name)}.{naming.namespace}.svc",
        "httpPort": triton.HTTP_PORT,
        "grpcPort": triton.GRPC_PORT,
        "grpcTls": present(server.triton.grpc_tls),
    }


def _openai_pool(naming: Naming, server: OpenaiServerArgs, pool: PoolArgs) -> Tree:
    return {
        **_pool(pool),
        "host": service_of(server, pool, lambda name: f"{name}.{naming.namespace}.svc"),
        "httpPort": openai.HTTP_PORT,
        "grpcTls": False,
        "livePath": by_engine(server.openai, lambda engine, it: engine.paths(it)[0]),
    }


def _pool(pool: PoolArgs) -> Tree:
    return {
        "name": external_name(pool, _same),
        "loading": pool.loading.mode,
        "empty": either(pool.autoscaling, lambda _: None, lambda: if_true(pool.replicas, lambda: None, lambda: True)),
        "wakeSeconds": of_kind(
            pool.autoscaling,
            QueueScaling,
            lambda scaling: if_true(scaling.min, lambda: None, lambda: scaling.wake_seconds),
        ),
        "leasePort": of_kind(pool.loading, OnDemand, lambda _: eviction_process.LEASE_PORT),
    }


def _model(server: ServerArgs, pool: PoolArgs, model: Model) -> Tree:
    return {
        "name": model.name,
        "server": external_name(server, _same),
        "pool": external_name(pool, _same),
        "versions": listed(model.versions, lambda share: picked(share, "version", "weight")),
        "alias": model.alias,
        "servedNames": when(none_if_empty(model.served_names), lambda names: names),
        "idleSeconds": either(
            model.idle_seconds,
            lambda seconds: seconds,
            lambda: of_kind(pool.loading, OnDemand, lambda loading: loading.idle_seconds),
        ),
        "pinned": model.pinned,
        "footprintBytes": when(model.footprint, in_bytes),
    }


def access_table(proxy: ProxyArgs) -> Tree:
    """Return the table of issuers, access rules and rate limits, `access.json`."""
    rule_keys = ("name", "principals", "groups", "source", "actions", "servers", "models")
    return {
        "version": routing.VERSION,
        "issuers": listed(
            proxy.auth.oidc, lambda issuer: picked(issuer, "issuer", "audiences", "jwks_url", "groups_claim")
        ),
        "rules": listed(proxy.access, lambda rule: picked(rule, *rule_keys)),
        "rateLimit": picked(proxy.rate_limit, "requests_per_minute", "burst", "tokens_per_minute"),
    }


def proxy_settings(proxy: ProxyArgs, naming: Naming, domino: Domino | None) -> Tree | None:
    """Return the environment variables of the proxy: `tidegate_contracts.proxy_settings.ProxySettings`."""
    return merged(
        {
            variable("environment"): naming.environment,
            variable("replicas_host"): f"{PROXY_HEADLESS}.{naming.namespace}.svc",
            variable("body_limit_bytes"): f"{in_bytes(proxy.body_limit)}",
            variable("concurrency"): f"{proxy.concurrency}",
            variable("connect_timeout_seconds"): f"{proxy.timeouts.connect_seconds}",
            variable("request_timeout_seconds"): f"{proxy.timeouts.request_seconds}",
            variable("drain_seconds"): f"{proxy.timeouts.drain_seconds}",
            variable("log_level"): proxy.log_level,
            variable("tls"): either(proxy.tls, lambda _: "true", lambda: "false"),
            variable("api_keys"): either(proxy.auth.api_keys, lambda _: "true", lambda: "false"),
        },
        when(none_if_empty(proxy.auth.authorities), lambda _: {variable("authorities"): "true"}),
        of_kind(proxy.exposure, IngressExposure, lambda ingress: _exposed_at(ingress.path)),
        of_kind(proxy.exposure, HttpRouteExposure, lambda route: _exposed_at(route.path)),
        when(
            proxy.tracing,
            lambda tracing: {
                variable("otlp_endpoint"): tracing.endpoint,
                variable("trace_percent"): f"{tracing.percent}",
            },
        ),
        when(
            proxy.metrics,
            lambda metrics: {
                variable("metrics_models"): f"{metrics.models}",
                variable("metrics_callers"): f"{metrics.callers}",
            },
        ),
        when(
            domino,
            lambda found: if_true(
                proxy.auth.domino_principal, lambda: {variable("domino_principal_url"): _principal_url(found)}
            ),
        ),
    )


def _exposed_at(path: str) -> Tree | None:
    """Return the setting of the path, which requests still have, because few controllers can rewrite it."""
    return if_true(equals(path, "/"), lambda: None, lambda: {variable("path"): path})


def _principal_url(domino: Domino) -> str:
    here = f"http://nucleus-frontend.{domino.platform_namespace}.svc:80/v4/auth/principal"
    return either(domino.principal_url, lambda url: url, lambda: here)
