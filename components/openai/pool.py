"""A pool of engines that speak OpenAI's HTTP API: replicas of one model, or of several that share a slice."""

from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import openai
from tidegate_contracts.metrics import ENGINE

from stacks.definition.base import Resources
from stacks.definition.pools import OnDemand

from .. import pods, server_pool
from ..args import PoolContext
from ..eviction import lease_ports, policy_sidecars, policy_volumes
from ..gpu_placement import GpuPlacement
from ..values import joined, none_if_empty, of_kind, quotient
from .engines import HOME, NO_GPU, Engine, Served, by_engine, of_model
from .server import OpenaiServerArgs
from .sleep import sleep_settings, sleepers

_UP = ENGINE["up"].series_name
# What it hands out on a port of its own is the engine's metrics and nothing else of what the engine answers. An engine
# has none while it loads, which may take long: that is said, and is no target that is down.
_RELAY = f"""\
import http.client, http.server, sys
from urllib.request import ProxyHandler, build_opener
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        up, parts = 1, []
        for address in sys.argv[2:] if self.path == "/metrics" else ():
            try:
                parts.append(build_opener(ProxyHandler({{}})).open(address, timeout=4).read())
            except (OSError, http.client.HTTPException):
                up = 0
        if self.path == "/metrics":
            parts.append(b"# TYPE {_UP} gauge\\n{_UP} %d\\n" % up)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b"\\n".join(parts))
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
_RELAY_RESOURCES, _DISK = Resources(cpu="10m", memory="64Mi"), "64Mi"


class OpenaiPool(pulumi.ComponentResource):
    """A StatefulSet of engines with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a pool of a server."""
        super().__init__("tidegate:components:OpenaiPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        args, server = pool.args, cast("OpenaiServerArgs", pool.server)
        placement = GpuPlacement(f"{name}-placement", args.placement, pool.place, pool.name, pool.labels, child)
        spec = server_pool.pod_spec(
            pool,
            placement,
            server.openai.exit_timeout_seconds,
            policy_volumes(pool),
            init_containers=none_if_empty(
                joined(
                    policy_sidecars(pool, server_pool.repository_mounts(server, openai.REPOSITORY_ROOT)),
                    by_engine(server.openai, lambda engine, it: _sidecars(pool, engine, it)),
                )
            ),
            containers=of_kind(
                args.loading,
                OnDemand,
                lambda _: [sleepers(pool, server, placement)],
                lambda: by_engine(
                    server.openai,
                    lambda engine, it: of_model(
                        args, server, it, lambda served: _engine(pool, placement, engine, it, served)
                    ),
                ),
            ),
        )
        # By number: what the port is called, the container of a frontend may say.
        ports = [pods.service_port("http", openai.HTTP_PORT, openai.HTTP_PORT)]
        settings = sleep_settings(name, pool, server, child)
        server_pool.declare(name, pool, spec, ports, self, more_ports=lease_ports(pool), needs=settings)
        self.register_outputs({})


def _engine(
    pool: PoolContext, placement: GpuPlacement, engine: Engine, it: Any, served: Served
) -> k8s.core.v1.ContainerArgs:
    args = pool.args
    port, number = engine.port
    live, ready = engine.paths(it)
    return pods.container(
        "engine",
        pool.server.image,
        pool.every_pod,
        {port: number},
        joined(pods.variables(HOME), engine.variables(it, served), pods.variables(it.environment)),
        command=engine.command(it),
        args=none_if_empty(engine.arguments(it, served)),
        resources=placement.resources(args.resources, args.scratch),
        # A probe every ten seconds, for as long as loading may take: that is told from being hung.
        startup_probe=pods.http_probe(ready, port, 10, failures=quotient(args.startup_seconds, 10)),
        readiness_probe=pods.http_probe(ready, port, 5, failures=3),
        # Patient: a long prompt can hold up the answer.
        liveness_probe=pods.http_probe(live, port, 10, failures=6, timeout_seconds=10),
        lifecycle=pods.pre_stop(),
        volume_mounts=server_pool.mounts(pool.server, openai.REPOSITORY_ROOT),
    )


def _sidecars(pool: PoolContext, engine: Engine, it: Any) -> list[k8s.core.v1.ContainerArgs] | None:
    """Return what runs beside an engine, and ends after it."""
    found: list[k8s.core.v1.ContainerArgs] | None = none_if_empty(
        joined(engine.frontends(it, pool), engine.metrics(it, lambda addresses: [_relay(pool, addresses)]))
    )
    return found


def _relay(pool: PoolContext, addresses: list[str]) -> k8s.core.v1.ContainerArgs:
    """Return the container that hands an engine's metrics to Prometheus, which may not reach the API's own port."""
    return pods.container(
        "metrics",
        pool.server.image,
        pool.every_pod,
        {"metrics": openai.METRICS_PORT},
        pods.variables({**HOME, **NO_GPU}),
        command=["python3", "-c", _RELAY],
        args=[f"{openai.METRICS_PORT}", *addresses],
        restart_policy="Always",
        resources=pods.container_resources(_RELAY_RESOURCES, _DISK),
        startup_probe=pods.http_probe("/", "metrics", 1, failures=60),
        liveness_probe=pods.http_probe("/", "metrics", 10, failures=6),
    )
