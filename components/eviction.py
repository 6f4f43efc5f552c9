"""The eviction policy in each replica of an on-demand pool: container and settings (`tidegate_contracts.eviction`)."""

from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction, eviction_process

from stacks.definition.models import Model
from stacks.definition.pools import OnDemand

from . import pods, staging
from .args import PoolArgs, PoolContext
from .values import (
    if_true,
    in_bytes,
    joined,
    json_text,
    listed,
    needed,
    of_kind,
    when,
)

Tree = dict[str, Any]

_CAPACITY_IS_NEEDED = "loading.capacity is required: the memory that the models of a replica may use"
_STATE, _DISK = "64Mi", "128Mi"
"""Disk for the state that survives a restart, and disk for that and the log."""


def _settings(args: PoolArgs, loading: OnDemand, repository: Any, grpc_tls: bool) -> Tree:
    return {
        "version": eviction.VERSION,
        "policy": loading.policy,
        "repository": repository,
        "staging": when(loading.staging, staging.settings),
        "grpcTls": grpc_tls,
        "capacityBytes": in_bytes(needed(loading.capacity, _CAPACITY_IS_NEEDED)),
        "idleSeconds": loading.idle_seconds,
        "leaseSeconds": loading.lease_seconds,
        "waitSeconds": loading.wait_seconds,
        "models": listed(args.models, _model),
    }


def _model(model: Model) -> Tree:
    return {
        "name": model.name,
        "idleSeconds": model.idle_seconds,
        "pinned": model.pinned,
        "footprintBytes": when(model.footprint, in_bytes),
        # Versions without traffic need not be loaded.
        "versions": listed(model.versions, lambda share: if_true(share.weight, lambda: share.version)),
        "alias": model.alias,
    }


def settings_map(
    name: str,
    pool: PoolContext,
    child: pulumi.ResourceOptions,
    *,
    repository: str | None,
    grpc_tls: bool,
) -> k8s.core.v1.ConfigMap | None:
    """Declare the ConfigMap with the policy's settings, if the pool loads on demand. `repository` is the server's model
    repository: a directory or a URL."""
    return of_kind(
        pool.args.loading,
        OnDemand,
        lambda loading: k8s.core.v1.ConfigMap(
            f"{name}-eviction",
            metadata=pool.naming.metadata(_settings_name(pool), pool.labels),
            data={eviction_process.SETTINGS_FILE: json_text(_settings(pool.args, loading, repository, grpc_tls))},
            opts=child,
        ),
    )


def lease_ports(pool: PoolContext) -> list[k8s.core.v1.ServicePortArgs] | None:
    """Return the lease port of the policy, for the headless Service."""
    return of_kind(
        pool.args.loading,
        OnDemand,
        lambda _: [pods.service_port("lease", eviction_process.LEASE_PORT, eviction_process.LEASE_PORT)],
    )


def policy_volumes(pool: PoolContext) -> list[k8s.core.v1.VolumeArgs] | None:
    """Return the policy's volumes. The server also mounts `control`, from which it reads its secret, and the volume of
    staged files if there is one. Only the policy mounts the token for the Kubernetes API."""
    return of_kind(
        pool.args.loading,
        OnDemand,
        lambda loading: joined(
            [
                pods.memory_volume("control", "1Mi"),
                pods.config_volume("eviction-settings", _settings_name(pool)),
                pods.scratch_volume("eviction-state", _STATE),
                cast("k8s.core.v1.VolumeArgs", eviction_process.CLUSTER),
            ],
            when(loading.staging, staging.volumes),
        ),
    )


def policy_sidecars(
    pool: PoolContext,
    *more_mounts: list[k8s.core.v1.VolumeMountArgs] | None,
    env: list[k8s.core.v1.EnvVarArgs] | None = None,
) -> list[k8s.core.v1.ContainerArgs] | None:
    """Return the policy as a native sidecar, if the pool loads on demand.

    `more_mounts` are mounts of the server's files, and `env` are variables for reading object storage. The policy
    starts before the server and stops after it. It has no readiness probe on purpose, because resident models still
    respond without it. While a crashed policy waits for its restart, Kubernetes counts the pod as not ready, and
    removes its address from DNS: see `tidegate_contracts.routing.Pool.host`.
    """
    return of_kind(pool.args.loading, OnDemand, lambda loading: [_container(pool, loading, more_mounts, env)])


def _container(
    pool: PoolContext,
    loading: OnDemand,
    more_mounts: tuple[list[k8s.core.v1.VolumeMountArgs] | None, ...],
    env: list[k8s.core.v1.EnvVarArgs] | None,
) -> k8s.core.v1.ContainerArgs:
    image: Any = needed(pool.policy_image, "evictionPolicyImage is required: a pool loads models on demand")
    return pods.container(
        "eviction-policy",
        image,
        pool.every_pod,
        {"lease": eviction_process.LEASE_PORT, "policy-admin": eviction_process.ADMIN_PORT},
        restart_policy="Always",
        command=["python", "-m", eviction_process.MODULE, "serve"],
        env=joined(env, when(pool.api_server, lambda _: pods.variables({eviction_process.KEYS_REQUIRED: "true"}))),
        resources=staging.counted(loading, pool.args.policy_resources, _DISK),
        startup_probe=pods.http_probe(eviction_process.STARTED_PATH, "policy-admin", 1, failures=60),
        liveness_probe=pods.http_probe(eviction_process.LIVE_PATH, "policy-admin", 10, failures=3),
        volume_mounts=joined(
            [
                pods.mount("control", eviction_process.CONTROL_ROOT, read_only=False),
                pods.mount("eviction-settings", eviction_process.SETTINGS_ROOT),
                pods.mount("eviction-state", eviction_process.STATE_ROOT, read_only=False),
                pods.mount(str(eviction_process.CLUSTER["name"]), eviction_process.CLUSTER_ROOT),
            ],
            staging.mounts(pool.args, read_only=False),
            *more_mounts,
        ),
    )


def _settings_name(pool: PoolContext) -> str:
    return f"{pool.name}-eviction"
