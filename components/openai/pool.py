"""A pool of engines with the OpenAI HTTP API: replicas of one model."""

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

_FULL_PERCENT = "91"  # The HPA controller tolerates a tenth more, so full replicas do not request another one.
_MINUTES_OF_AN_HOUR = 55  # Minutes of an hour for which Prometheus must have data. It bridges gaps of five minutes.


class OpenaiPool(pulumi.ComponentResource):
    """A StatefulSet of engines with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
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
        # By number, because the container of a frontend may name the port.
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

    def queries(waiting: tuple[str, ...], running: tuple[str, ...], otherwise: str = "") -> list[dict[str, Any]]:
        # Enough replicas have no queue, and a query of the queue alone would remove them. So as many replicas stay as
        # the running requests need, if each runs as many as any replica did in the last hour. If no request waited
        # during that hour, that number is not the maximum of a replica.
        most = f"clamp_min({most_of_a_pod(running, of_pods, '[1h]')}, 1)"
        none = f"(({most_of_a_pod(waiting, of_pods, '[1h]')}) == bool 0)"
        exported = " or ".join(f"count({name}{{{of_pods}}})" for name in waiting)
        is_known = f"(count_over_time(({exported})[1h:1m]) >= bool {_MINUTES_OF_AN_HOUR})"
        held = f"100 * ({mean_of_all_pods(running, of_pods, '[2m]')}) / {most} * (1 - {none} * {is_known})"
        waits = mean_of_all_pods(waiting, of_pods, "[2m]")
        return [
            trigger(scaling, f"{waits}{otherwise}", f"{scaling.waiting_requests}", "AverageValue"),
            trigger(scaling, f"{held}{otherwise}", _FULL_PERCENT, "AverageValue"),
        ]

    return of_kind(
        server.openai,
        CustomSettings,
        lambda it: queries((it.waiting_metric,), (it.running_metric,)),
        # An engine may have no series before its first call.
        lambda: queries(WAITING, RUNNING, f" or 0 * sum(tidegate_engine_up{{{of_pods}}} == 1)"),
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
        joined(pods.variables(HOME), placement.variables, engine.variables(it, served), server_pool.own_variables(it)),
        command=engine.command(it),
        args=none_if_empty(engine.arguments(it, served)),
        resources=placement.resources(args.resources, args.scratch),
        # A probe every ten seconds for startupSeconds, so that loading does not count as a hang.
        startup_probe=pods.http_probe(ready, port, 10, failures=quotient(args.startup_seconds, 10)),
        readiness_probe=pods.http_probe(ready, port, 5, failures=3),
        # A long timeout, because a long prompt can delay the response.
        liveness_probe=pods.http_probe(live, port, 10, failures=6, timeout_seconds=10),
        lifecycle=pods.pre_stop(),
        volume_mounts=joined(server_pool.mounts(pool.server, openai.REPOSITORY_ROOT), frontends.mounts(pool.server)),
    )


def _sidecars(pool: PoolContext, engine: Engine, it: Any) -> list[k8s.core.v1.ContainerArgs] | None:
    """Return the sidecars of an engine, which stop after it."""
    found: list[k8s.core.v1.ContainerArgs] | None = none_if_empty(
        joined(
            engine.frontends(it, pool),
            engine.metrics(it, lambda addresses: [relay(pool.server, pool.every_pod, addresses)]),
        )
    )
    return found
