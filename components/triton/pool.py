"""A pool of Triton servers: replicas on one kind of slice, each with an eviction policy if it loads on demand."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, triton

from stacks.definition.pools import OnDemand, Preload, QueueScaling
from stacks.definition.servers import AzureIdentity

from .. import pods, server_pool, staging
from ..args import (
    ObjectStoreRepositoryArgs,
    PoolArgs,
    PoolContext,
    TritonServerArgs,
    external_name,
    repository_root,
)
from ..eviction import lease_ports, policy_sidecars, policy_volumes, settings_map
from ..gpu_placement import GpuPlacement
from ..queue_scaling import trigger
from ..values import (
    equals,
    if_true,
    joined,
    of_kind,
    present,
    quotient,
    when,
)

Made = TypeVar("Made")

_STARTED = "/tmp/started"
_NO_ROOM = 'type="busy",reason=~"no-room|queued|queue-full"'
"""The labels of busy calls, in metrics of proxies, that another replica could have served."""
_NEVER_REACHED = "1000000"
_FULL_PERCENT = "90"  # The HPA controller tolerates a tenth more, and a first load needs a margin.
# Without a secret Triton would be open to all clients, so it must not start. With a policy the secret exists, because
# the kubelet starts Triton after the policy's startup probe has passed. Clients do not need the control protocols of a
# server that polls, so its random secret is not stored.
_WITH_POLICY = f'secret=$(cat "{eviction_process.CONTROL_SECRET_FILE}") && [ -n "$secret" ]'
_WITHOUT_POLICY = "secret=$(head -c 32 /dev/urandom | base64 | tr -d '\\n') && [ -n \"$secret\" ]"
# Leaked memory returns only when the process ends. If the policy requests it, this sends SIGTERM to Triton, and the
# kubelet restarts it. A request for the previous process is older than the mark.
# The shell cannot use its process id $$, because Kubernetes turns $$ into $ in commands.
_UNTIL_RECYCLED = (
    f'touch {_STARTED} && {{ sh -c \'until [ "{eviction_process.RECYCLE_FILE}" -nt {_STARTED} ];'
    ' do kill -0 "$PPID" && sleep 2 || exit; done; kill -TERM "$PPID"\' > /dev/null 2>&1 & }'
)


def _serve(restricted: tuple[str, ...]) -> str:
    protocols = ",".join(restricted)
    return (
        # Remove files of the Python backend of a killed process, because the volume outlives the process.
        "rm -f /dev/shm/triton_python_backend_shm_region_*"
        ' && exec tritonserver "$@"'
        f' "--http-restricted-api={protocols}:{triton.RESTRICTED_KEY}=$secret"'
        f' "--grpc-restricted-protocol={protocols}:{triton.RESTRICTED_KEY}=$secret"'
    )


_ON_DEMAND = " && ".join((_WITH_POLICY, _UNTIL_RECYCLED, _serve(triton.RESTRICTED_PROTOCOLS)))
_POLLING = " && ".join((_WITHOUT_POLICY, _serve(triton.POLLING_RESTRICTED_PROTOCOLS)))


class TritonPool(pulumi.ComponentResource):
    """A StatefulSet of Triton servers with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a pool of a server. Its pods stay out of the mesh."""
        super().__init__("tidegate:components:TritonPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        args, naming, server = pool.args, pool.naming, cast("TritonServerArgs", pool.server)
        placement = GpuPlacement(f"{name}-placement", args.placement, naming, pool.name, pool.labels, child)
        repository = repository_root(server, triton.REPOSITORY_ROOT, lambda root: root)
        tls = present(server.triton.grpc_tls)
        settings = settings_map(name, pool, child, repository=repository, grpc_tls=tls)
        ports = [
            pods.service_port("http", triton.HTTP_PORT, "http"),
            pods.service_port("grpc", triton.GRPC_PORT, "grpc", when(server.triton.grpc_tls, lambda _: pods.HTTPS)),
        ]
        spec = _pod(pool, server, placement)
        triggers = partial(_triggers, pool)
        server_pool.declare(name, pool, spec, ports, self, triggers, more_ports=lease_ports(pool), needs=settings)
        self.register_outputs({})


def _triggers(pool: PoolContext, metadata: Any, scaling: QueueScaling) -> list[dict[str, Any]]:
    of_pods = f'namespace="{metadata.namespace}",pod=~"{metadata.name}-[0-9]+"'
    # The policy's own requests do not count: with them a pool without callers would never be idle.
    of_calls = f'{of_pods},model!="{triton.MEMORY_MODEL}"'
    # Series that are exported all the time, with or without calls.
    by_proxies = f'tidegate_proxy_in_flight{{namespace="{metadata.namespace}"}}'
    by_triton = f"nv_pinned_memory_pool_total_bytes{{{of_pods}}}"
    known = _known(by_proxies, by_triton, f"tidegate_eviction_triton_up{{{of_pods}}}")

    def at_server(make: Callable[[str], Made]) -> Made:
        """Return the result of `make` for the labels of this pool's server in metrics of proxies."""
        return external_name(pool.server, lambda server: make(f'namespace="{metadata.namespace}",server="{server}"'))

    def at_proxies(make: Callable[[str], Made]) -> Made:
        """Return the result of `make` for the labels of this pool in metrics of proxies."""
        return at_server(lambda labels: external_name(pool.args, lambda name: make(f'{labels},pool="{name}"')))

    return joined(
        [
            # Mean queue time of the requests of the last two minutes, in milliseconds.
            trigger(
                scaling,
                f"sum(rate(nv_inference_queue_duration_us{{{of_calls}}}[2m])) / 1000"
                f" / clamp_min(sum(rate(nv_inference_request_success{{{of_calls}}}[2m])), 0.001)"
                # Triton has no series before the first call of a model.
                " or vector(0)",
                f"{scaling.queue_milliseconds}",
            ),
            # Calls of the last two minutes that were refused for lack of memory, in per cent of all.
            trigger(
                scaling,
                at_proxies(lambda labels: _busy(f"{labels},{_NO_ROOM}", of_calls)),
                f"{scaling.busy_percent}",
            ),
        ],
        of_kind(
            pool.args.loading,
            OnDemand,
            # Memory of the models used in the last two minutes, in per cent of one replica's. This also finds a
            # starved model, whose calls are few among the calls of busy models.
            lambda _: [
                trigger(
                    scaling,
                    at_server(lambda labels: _room(of_pods, labels)),
                    _FULL_PERCENT,
                    metric_type="AverageValue",
                ),
                trigger(
                    scaling,
                    if_true(
                        scaling.min,
                        lambda: known,
                        # A pool without replicas exports nothing. Nothing is missing if proxies have no replica.
                        lambda: at_proxies(
                            lambda labels: (
                                f"{known} or 0 * count({by_proxies})"
                                f" unless count(tidegate_proxy_replica_in_flight{{{labels}}})"
                            )
                        ),
                    ),
                    _NEVER_REACHED,
                ),
            ],
            lambda: [trigger(scaling, _known(by_proxies, by_triton), _NEVER_REACHED)],
        ),
        if_true(
            scaling.min,
            lambda: None,
            # Callers that wait or waited for a replica, and calls in flight. Any of them starts or keeps one replica,
            # but no number of them starts a second one.
            lambda: [
                trigger(scaling, at_proxies(_called), _NEVER_REACHED, metric_type="AverageValue"),
            ],
        ),
    )


def _known(*always: str) -> str:
    """Return a query that is 0 if Prometheus has had these series for a minute, and that is empty otherwise.

    The other queries are 0 without data. KEDA needs all queries to remove a replica, so a Prometheus that has just
    started, or does not reach the pods, removes none.
    """
    return f"0 * ({' and '.join(f'count(present_over_time({series}[1m] offset 1m))' for series in always)})"


def _busy(labels: str, of_calls: str) -> str:
    busy = f"(sum(rate(tidegate_proxy_problems_total{{{labels}}}[2m])) or vector(0))"
    answered = f"(sum(rate(nv_inference_request_success{{{of_calls}}}[2m])) or vector(0))"
    return f"100 * {busy} / clamp_min({busy} + {answered}, 0.001)"


def _room(of_pods: str, of_server: str) -> str:
    in_use = f"max by (model) (max_over_time(tidegate_eviction_model_leases{{{of_pods}}}[2m])) > 0"
    refused = f"increase(tidegate_proxy_model_problems_total{{{of_server},{_NO_ROOM}}}[2m])"
    takes = f"max by (model) (max_over_time(tidegate_eviction_model_footprint_bytes{{{of_pods}}}[2m]))"
    capacity = f'max(max_over_time(tidegate_eviction_bytes{{{of_pods},kind="capacity"}}[2m]))'
    return f"100 * sum({takes} and ({in_use} or sum by (model) ({refused}) > 0)) / {capacity} or vector(0)"


def _called(labels: str) -> str:
    waiting = f"sum(max_over_time(tidegate_proxy_lease_waiting{{{labels}}}[2m]))"
    waited = f"sum(increase(tidegate_proxy_lease_wait_seconds_count{{{labels}}}[2m]))"
    # Proxies have no series without a replica.
    there = f"(sum(max_over_time(tidegate_proxy_replica_in_flight{{{labels}}}[2m])) or vector(0))"
    return f"{waiting} + {waited} + {there}"


def _pod(pool: PoolContext, server: TritonServerArgs, placement: GpuPlacement) -> k8s.core.v1.PodSpecArgs:
    """Return the spec of a pool's pods."""
    args = pool.args
    return server_pool.pod_spec(
        pool,
        placement,
        server.triton.exit_timeout_seconds,
        joined(
            when(server.triton.grpc_tls, lambda tls: [pods.secret_volume("tls", tls.secret)]),
            policy_volumes(pool),
        ),
        staging.file_group(args),
        init_containers=policy_sidecars(
            pool,
            server_pool.repository_mounts(server, triton.REPOSITORY_ROOT),
            when(server.triton.grpc_tls, lambda _: [pods.mount("tls", triton.TLS_ROOT)]),
            # The policy reads the bucket too, so it needs the same variables as Triton.
            env=of_kind(
                server.repository, ObjectStoreRepositoryArgs, lambda _: server_pool.own_variables(server.triton)
            ),
        ),
        containers=[_triton(pool, server, placement)],
    )


def _triton(pool: PoolContext, server: TritonServerArgs, placement: GpuPlacement) -> k8s.core.v1.ContainerArgs:
    args = pool.args
    # The shell puts the secret into the arguments, so that no manifest contains it. Then Triton replaces the shell.
    start = if_true(equals(args.loading.mode, "on-demand"), lambda: _ON_DEMAND, lambda: _POLLING)
    return pods.container(
        "triton",
        server.image,
        pool.every_pod,
        {"http": triton.HTTP_PORT, "grpc": triton.GRPC_PORT, "metrics": triton.METRICS_PORT},
        command=["/bin/sh", "-c", start, "tritonserver"],
        args=_arguments(server, args),
        env=joined(
            # The root file system is read-only.
            [k8s.core.v1.EnvVarArgs(name="HOME", value="/tmp")],
            placement.variables,
            # By default Triton reads Azure with an account key. This makes it use the pod's identity.
            of_kind(
                server.identity,
                AzureIdentity,
                lambda _: [k8s.core.v1.EnvVarArgs(name="AZURE_STORAGE_AUTH_TYPE", value="default")],
            ),
            server_pool.own_variables(server.triton),
        ),
        resources=placement.resources(args.resources, args.scratch),
        # A probe every ten seconds, for startupSeconds.
        startup_probe=pods.http_probe(triton.LIVE_PATH, "http", 10, failures=quotient(args.startup_seconds, 10)),
        # Without strict readiness this stays true when a model fails to load.
        readiness_probe=pods.http_probe(triton.READY_PATH, "http", 5, failures=3),
        # A long timeout, because a large load can block Triton's HTTP front end for seconds.
        liveness_probe=pods.http_probe(triton.LIVE_PATH, "http", 10, failures=6, timeout_seconds=10),
        lifecycle=pods.pre_stop(),
        volume_mounts=joined(
            server_pool.mounts(server, triton.REPOSITORY_ROOT),
            staging.mounts(args, read_only=True),
            when(server.triton.grpc_tls, lambda _: [pods.mount("tls", triton.TLS_ROOT)]),
            of_kind(args.loading, OnDemand, lambda _: [pods.mount("control", eviction_process.CONTROL_ROOT)]),
        ),
    )


def _arguments(server: TritonServerArgs, pool: PoolArgs) -> list[str]:
    """Return tritonserver's arguments. Run `tritonserver --help` for their documentation."""
    settings = server.triton
    return joined(
        staging.if_staged(
            pool,
            lambda _: [f"--model-repository={eviction_process.STAGED_REPOSITORY}"],
            lambda: repository_root(server, triton.REPOSITORY_ROOT, lambda root: [f"--model-repository={root}"]),
        ),
        of_kind(
            pool.loading,
            Preload,
            lambda loading: ["--model-control-mode=poll", f"--repository-poll-secs={loading.poll_seconds}"],
        ),
        of_kind(pool.loading, OnDemand, lambda _: ["--model-control-mode=explicit"]),
        [
            # One model that fails to load must not stop the others.
            "--exit-on-error=false",
            "--strict-readiness=false",
            f"--exit-timeout-secs={settings.exit_timeout_seconds}",
            f"--http-port={triton.HTTP_PORT}",
            f"--grpc-port={triton.GRPC_PORT}",
            f"--metrics-port={triton.METRICS_PORT}",
            "--log-format=ISO8601",
        ],
        when(
            settings.grpc_tls,
            lambda _: [
                "--grpc-use-ssl=true",
                f"--grpc-server-cert={triton.TLS_ROOT}/tls.crt",
                f"--grpc-server-key={triton.TLS_ROOT}/tls.key",
            ],
        ),
        settings.extra_arguments,
    )
