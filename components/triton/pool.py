"""A pool of Tritons: replicas on one kind of slice, and beside each on-demand one its eviction policy."""

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
"""What proxies count of calls that another replica would have had room for."""
_NEVER_REACHED = "1000000"
_FULL_PERCENT = "90"  # The HPA controller lets pass what is a tenth more, and a first load takes a margin.
# Without a secret Triton would be open to all clients: rather no Triton. With a policy it is there: the kubelet
# starts Triton only after the policy's start-up probe has passed. Nobody needs the control protocols of a server that
# polls: its secret is forgotten as soon as it is made.
_WITH_POLICY = f'secret=$(cat "{eviction_process.CONTROL_SECRET_FILE}") && [ -n "$secret" ]'
_WITHOUT_POLICY = "secret=$(head -c 32 /dev/urandom | base64 | tr -d '\\n') && [ -n \"$secret\" ]"
# What a model has leaked comes back only with the process: where the policy asks for that, Triton ends as on SIGTERM,
# and the kubelet starts it anew. What was asked of the process before is older than the mark.
# Not by its own number, which a shell calls $$: Kubernetes makes one $ of two, in commands too.
_UNTIL_RECYCLED = (
    f'touch {_STARTED} && {{ sh -c \'until [ "{eviction_process.RECYCLE_FILE}" -nt {_STARTED} ];'
    ' do kill -0 "$PPID" && sleep 2 || exit; done; kill -TERM "$PPID"\' > /dev/null 2>&1 & }'
)


def _serve(restricted: tuple[str, ...]) -> str:
    protocols = ",".join(restricted)
    return (
        # The Python backend of a process before that was killed has left some here, for the volume outlives it.
        "rm -f /dev/shm/triton_python_backend_shm_region_*"
        ' && exec tritonserver "$@"'
        f' "--http-restricted-api={protocols}:{triton.RESTRICTED_KEY}=$secret"'
        f' "--grpc-restricted-protocol={protocols}:{triton.RESTRICTED_KEY}=$secret"'
    )


_WHEN_TOLD = " && ".join((_WITH_POLICY, _UNTIL_RECYCLED, _serve(triton.RESTRICTED_PROTOCOLS)))
_BY_ITSELF = " && ".join((_WITHOUT_POLICY, _serve(triton.POLLING_RESTRICTED_PROTOCOLS)))


class TritonPool(pulumi.ComponentResource):
    """A StatefulSet of Tritons with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a pool of a server; pods stay out of the mesh, where there is one."""
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
    # The policy's own questions are no calls: a pool that nobody calls would never be idle.
    of_calls = f'{of_pods},model!="{triton.MEMORY_MODEL}"'
    # What is told all the time, whether anybody calls or not.
    by_proxies = f'tidegate_proxy_in_flight{{namespace="{metadata.namespace}"}}'
    by_triton = f"nv_pinned_memory_pool_total_bytes{{{of_pods}}}"
    known = _known(by_proxies, by_triton, f"tidegate_eviction_triton_up{{{of_pods}}}")

    def at_server(make: Callable[[str], Made]) -> Made:
        """Return what `make` makes of the labels by which proxies tell of this pool's server."""
        return external_name(pool.server, lambda server: make(f'namespace="{metadata.namespace}",server="{server}"'))

    def at_proxies(make: Callable[[str], Made]) -> Made:
        """Return what `make` makes of the labels by which proxies tell of this pool."""
        return at_server(lambda labels: external_name(pool.args, lambda name: make(f'{labels},pool="{name}"')))

    return joined(
        [
            # Mean time in the queue of a request of the last two minutes, in milliseconds.
            trigger(
                scaling,
                f"sum(rate(nv_inference_queue_duration_us{{{of_calls}}}[2m])) / 1000"
                f" / clamp_min(sum(rate(nv_inference_request_success{{{of_calls}}}[2m])), 0.001)"
                # None where no model was called yet, which Triton has no series of.
                " or vector(0)",
                f"{scaling.queue_milliseconds}",
            ),
            # Calls of the last two minutes that found no room, in per cent of all.
            trigger(
                scaling,
                at_proxies(lambda labels: _busy(f"{labels},{_NO_ROOM}", of_calls)),
                f"{scaling.busy_percent}",
            ),
        ],
        of_kind(
            pool.args.loading,
            OnDemand,
            # What the models of the last two minutes take of memory, in per cent of what one replica has. One
            # that finds no room is few of all calls where others are called all the time.
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
                        # A pool of none tells nothing, and nothing is missing: proxies have no replica to call.
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
            # Callers that wait for a replica, or did, and calls under way: any of them brings one, or keeps it,
            # and no number of them a second.
            lambda: [
                trigger(scaling, at_proxies(_called), _NEVER_REACHED, metric_type="AverageValue"),
            ],
        ),
    )


def _known(*always: str) -> str:
    """Return a query for 0 once Prometheus has had these series for a minute, and for nothing where it has not.

    The other figures are 0 for what it does not know. So one that began anew, or does not reach the pods, takes no
    replica away: that wants all figures.
    """
    return f"0 * ({' and '.join(f'count(present_over_time({series}[1m] offset 1m))' for series in always)})"


def _busy(told: str, of_calls: str) -> str:
    busy = f"(sum(rate(tidegate_proxy_problems_total{{{told}}}[2m])) or vector(0))"
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
    # None where there is no replica, which proxies have no series of.
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
            # Those of Triton, as the policy reads a bucket too.
            env=of_kind(
                server.repository, ObjectStoreRepositoryArgs, lambda _: server_pool.said_variables(server.triton)
            ),
        ),
        containers=[_triton(pool, server, placement)],
    )


def _triton(pool: PoolContext, server: TritonServerArgs, placement: GpuPlacement) -> k8s.core.v1.ContainerArgs:
    args = pool.args
    # The shell puts the secret into the arguments, so that it stands in no manifest; Triton takes its place.
    start = if_true(equals(args.loading.mode, "on-demand"), lambda: _WHEN_TOLD, lambda: _BY_ITSELF)
    return pods.container(
        "triton",
        server.image,
        pool.every_pod,
        {"http": triton.HTTP_PORT, "grpc": triton.GRPC_PORT, "metrics": triton.METRICS_PORT},
        command=["/bin/sh", "-c", start, "tritonserver"],
        args=_arguments(server, args),
        env=joined(
            # The root file system is read-only, so home is elsewhere.
            [k8s.core.v1.EnvVarArgs(name="HOME", value="/tmp")],
            placement.variables,
            # Triton reads Azure with an account key unless it is told to use the pod's identity.
            of_kind(
                server.identity,
                AzureIdentity,
                lambda _: [k8s.core.v1.EnvVarArgs(name="AZURE_STORAGE_AUTH_TYPE", value="default")],
            ),
            server_pool.said_variables(server.triton),
        ),
        resources=placement.resources(args.resources, args.scratch),
        # A probe every ten seconds, for as long as a start may take.
        startup_probe=pods.http_probe(triton.LIVE_PATH, "http", 10, failures=quotient(args.startup_seconds, 10)),
        # Without strict readiness this stays true when a model fails to load.
        readiness_probe=pods.http_probe(triton.READY_PATH, "http", 5, failures=3),
        # Patient: a big load can hold up Triton's HTTP front end for seconds.
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
    """Return tritonserver's arguments; its documentation is `tritonserver --help`."""
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
            # One model that fails to load must not take the others down.
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
