"""A pool of engines that speak OpenAI's HTTP API: replicas of one model."""

from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import dynamo, openai

from stacks.definition.openai import CustomSettings
from stacks.definition.pools import QueueScaling

from .. import pods, server_pool
from ..args import OpenaiServerArgs, PoolContext
from ..gpu_placement import GpuPlacement
from ..queue_scaling import trigger
from ..values import joined, none_if_empty, of_kind, quotient
from . import frontends
from .engines import Engine, EngineSpec, by_engine, of_model
from .relay import HOME, relay
from .series import RUNNING, WAITING, mean_of_all_pods, most_of_a_pod

_FULL_PERCENT = "91"  # The HPA controller lets pass what is a tenth more: so replicas that are full want no other one.
_MINUTES_OF_AN_HOUR = 55  # That Prometheus has seen: a gap of five does not show there.


class OpenaiPool(pulumi.ComponentResource):
    """A StatefulSet of engines with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a pool of a server."""
        super().__init__("tidegate:components:OpenaiPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        args, server = pool.args, cast("OpenaiServerArgs", pool.server)
        placement = GpuPlacement(f"{name}-placement", args.placement, pool.naming, pool.name, pool.labels, child)
        spec = server_pool.pod_spec(
            pool,
            placement,
            server.openai.exit_timeout_seconds,
            frontends.volumes(server),
            init_containers=by_engine(server.openai, lambda engine, it: _sidecars(pool, engine, it)),
            containers=by_engine(
                server.openai,
                lambda engine, it: of_model(
                    args, server, it, lambda served: _engine(pool, placement, engine, it, served)
                ),
            ),
        )
        # By number: what the port is called, the container of a frontend may say.
        ports = frontends.shared(
            server,
            lambda _: [pods.service_port("system", dynamo.SYSTEM_PORT, dynamo.SYSTEM_PORT)],
            lambda: [pods.service_port("http", openai.HTTP_PORT, openai.HTTP_PORT)],
        )
        server_pool.declare(
            name,
            pool,
            spec,
            ports,
            self,
            lambda metadata, scaling: _triggers(server, metadata, scaling),
            headless_labels=frontends.shared(server, lambda _: dynamo.SERVICE_LABELS),
        )
        self.register_outputs({})


def _triggers(server: OpenaiServerArgs, metadata: Any, scaling: QueueScaling) -> list[dict[str, Any]]:
    of_pods = f'namespace="{metadata.namespace}",pod=~"{metadata.name}-[0-9]+"'

    def asked(waiting: tuple[str, ...], running: tuple[str, ...], otherwise: str = "") -> list[dict[str, Any]]:
        # Replicas that are enough have no queue, and would go for want of one: so many stay as hold what runs, each
        # the most that one has held of late. Where nothing is known to have waited for an hour, that is not the most.
        most = f"clamp_min({most_of_a_pod(running, of_pods, '[1h]')}, 1)"
        none = f"(({most_of_a_pod(waiting, of_pods, '[1h]')}) == bool 0)"
        told = " or ".join(f"count({name}{{{of_pods}}})" for name in waiting)
        is_known = f"(count_over_time(({told})[1h:1m]) >= bool {_MINUTES_OF_AN_HOUR})"
        held = f"100 * ({mean_of_all_pods(running, of_pods, '[2m]')}) / {most} * (1 - {none} * {is_known})"
        waits = mean_of_all_pods(waiting, of_pods, "[2m]")
        return [
            trigger(scaling, f"{waits}{otherwise}", f"{scaling.waiting_requests}", "AverageValue"),
            trigger(scaling, f"{held}{otherwise}", _FULL_PERCENT, "AverageValue"),
        ]

    return of_kind(
        server.openai,
        CustomSettings,
        lambda it: asked((it.waiting_metric,), (it.running_metric,)),
        # None where an engine was not called yet, which may have no series of it.
        lambda: asked(WAITING, RUNNING, f" or 0 * sum(tidegate_engine_up{{{of_pods}}} == 1)"),
    )


def _engine(
    pool: PoolContext, placement: GpuPlacement, engine: Engine, it: Any, served: EngineSpec
) -> k8s.core.v1.ContainerArgs:
    args = pool.args
    port, number = engine.port
    live, ready = engine.paths(it)
    return pods.container(
        "engine",
        pool.server.image,
        pool.every_pod,
        {port: number},
        joined(pods.variables(HOME), placement.variables, engine.variables(it, served), server_pool.said_variables(it)),
        command=engine.command(it),
        args=none_if_empty(engine.arguments(it, served)),
        resources=placement.resources(args.resources, args.scratch),
        # A probe every ten seconds, for as long as loading may take: that is told from being hung.
        startup_probe=pods.http_probe(ready, port, 10, failures=quotient(args.startup_seconds, 10)),
        readiness_probe=pods.http_probe(ready, port, 5, failures=3),
        # Patient: a long prompt can hold up the answer.
        liveness_probe=pods.http_probe(live, port, 10, failures=6, timeout_seconds=10),
        lifecycle=pods.pre_stop(),
        volume_mounts=joined(server_pool.mounts(pool.server, openai.REPOSITORY_ROOT), frontends.mounts(pool.server)),
    )


def _sidecars(pool: PoolContext, engine: Engine, it: Any) -> list[k8s.core.v1.ContainerArgs] | None:
    """Return what runs beside an engine, and ends after it."""
    found: list[k8s.core.v1.ContainerArgs] | None = none_if_empty(
        joined(
            engine.frontends(it, pool),
            engine.metrics(it, lambda addresses: [relay(pool.server, pool.every_pod, addresses)]),
        )
    )
    return found
