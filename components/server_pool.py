"""Parts that the pools of all kinds of servers share: the pod spec around the containers, and the pool's objects."""

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts.labels import LOADING, ROLE

from stacks.definition.base import CpuScaling
from stacks.definition.pools import QueueScaling
from stacks.definition.servers import ContainerVariables

from . import pods
from .args import GRACE_SECONDS, PoolContext, ServerArgs, VolumeRepositoryArgs
from .gpu_placement import GpuPlacement
from .identity import pod_labels
from .naming import Texts, service_account
from .queue_scaling import queue_autoscaler
from .values import each, either, if_true, joined, merged, of_kind, total, when


def pod_spec(
    pool: PoolContext,
    placement: GpuPlacement,
    exit_seconds: int,
    volumes: list[k8s.core.v1.VolumeArgs] | None,
    file_group: int | None = None,
    **more: Any,
) -> k8s.core.v1.PodSpecArgs:
    """Return the spec of a pool's pods. Requests in flight have `exit_seconds` to end. The pods have `volumes`,
    /dev/shm, /tmp, and the repository if it is a volume. `more` is added to the spec."""
    args, server = pool.args, pool.server
    return pods.pod_spec(
        service_account(server.kind, server.name),
        file_group,
        node_selector=placement.node_selector(args.node_selector),
        tolerations=placement.tolerations(args.tolerations),
        topology_spread_constraints=pods.spread_over_nodes(pool.selector),
        priority_class_name=args.priority_class,
        resource_claims=placement.resource_claims,
        # The pause before SIGTERM, then the time of requests in flight, then a margin.
        termination_grace_period_seconds=total(exit_seconds, GRACE_SECONDS),
        volumes=joined(
            [pods.memory_volume("shm", args.shared_memory), pods.scratch_volume("tmp", args.scratch)],
            of_kind(server.repository, VolumeRepositoryArgs, lambda repository: [_repository_volume(repository)]),
            volumes,
        ),
        **more,
    )


def own_variables(settings: ContainerVariables) -> list[k8s.core.v1.EnvVarArgs] | None:
    """Return the environment variables that the definition sets for a server's container."""
    secret = each(
        settings.secret_environment,
        lambda one: k8s.core.v1.EnvVarArgs(
            name=one.name,
            value_from=k8s.core.v1.EnvVarSourceArgs(
                secret_key_ref=k8s.core.v1.SecretKeySelectorArgs(name=one.secret, key=one.key)
            ),
        ),
    )
    return joined(pods.variables(settings.environment), secret)


def mounts(server: ServerArgs, repository_root: str) -> list[k8s.core.v1.VolumeMountArgs]:
    """Return the mounts of /dev/shm, /tmp and the repository, for the container that serves."""
    return joined(
        [pods.mount("shm", "/dev/shm", read_only=False), pods.mount("tmp", "/tmp", read_only=False)],
        repository_mounts(server, repository_root),
    )


def repository_mounts(server: ServerArgs, root: str) -> list[k8s.core.v1.VolumeMountArgs] | None:
    """Return the mount of the repository if it is a volume."""
    return of_kind(
        server.repository,
        VolumeRepositoryArgs,
        lambda repository: [
            k8s.core.v1.VolumeMountArgs(name="models", mount_path=root, sub_path=repository.sub_path, read_only=True)
        ],
    )


def declare(
    name: str,
    pool: PoolContext,
    spec: k8s.core.v1.PodSpecArgs,
    ports: list[k8s.core.v1.ServicePortArgs],
    parent: pulumi.Resource,
    triggers: Callable[[Any, QueueScaling], list[dict[str, Any]]],
    *,
    more_ports: list[k8s.core.v1.ServicePortArgs] | None = None,
    headless_labels: Texts | None = None,
    needs: pulumi.Resource | None = None,
) -> None:
    """Declare the StatefulSet of a pool's pods with its Services, budget and autoscaler.

    `triggers` returns the triggers of an autoscaler by queue, given the StatefulSet's metadata. `more_ports` and
    `headless_labels` apply only to the headless Service. `needs` is created before the pods. The pods stay out of the
    mesh.
    """
    args, naming = pool.args, pool.naming
    child = pulumi.ResourceOptions(parent=parent)
    timeouts = when(
        args.pulumi_timeouts,
        lambda seconds: pulumi.CustomTimeouts(create=f"{seconds.ready}s", update=f"{seconds.updated}s"),
    )
    # A Service is ready for Pulumi when its pods are, so it has the same timeouts.
    as_long = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(custom_timeouts=timeouts))
    # Each object needs separate metadata, because rollout/program annotates that of a Service.
    pods.service(f"{name}-service", naming.metadata(pool.name, pool.labels), pool.selector, ports, as_long)
    headless = naming.metadata(pool.headless_name, merged(pool.labels, headless_labels))
    pods.service(f"{name}-headless", headless, pool.selector, joined(ports, more_ports), child, cluster_ip="None")
    k8s.apps.v1.StatefulSet(
        f"{name}-servers",
        metadata=naming.metadata(pool.name, pool.labels),
        spec=k8s.apps.v1.StatefulSetSpecArgs(
            service_name=pool.headless_name,
            # An autoscaler sets the number if there is one.
            replicas=either(args.autoscaling, lambda _: None, lambda: args.replicas),
            # Replicas share nothing, so they can start at the same time.
            pod_management_policy="Parallel",
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pool.selector),
            template=k8s.core.v1.PodTemplateSpecArgs(
                metadata=k8s.meta.v1.ObjectMetaArgs(
                    labels=merged(
                        pod_labels(pool.server.identity),
                        pool.labels,
                        {ROLE: "server", LOADING: args.loading.mode},
                        when(pool.mesh, lambda _: {"sidecar.istio.io/inject": "false"}),
                    ),
                    annotations=merged(
                        pool.every_pod.annotations,
                        of_kind(
                            pool.server.repository,
                            VolumeRepositoryArgs,
                            lambda volume: if_true(volume.gcs_fuse, lambda: {"gke-gcsfuse/volumes": "true"}),
                        ),
                    ),
                ),
                spec=spec,
            ),
        ),
        opts=pulumi.ResourceOptions(
            parent=parent, depends_on=when(needs, lambda made: [made]), custom_timeouts=timeouts
        ),
    )
    metadata = naming.metadata(pool.name, pool.labels)
    pods.disruption_budget(f"{name}-budget", metadata, pool.selector, args.max_unavailable, child)
    of_kind(
        args.autoscaling,
        CpuScaling,
        lambda scaling: pods.cpu_autoscaler(f"{name}-autoscaler", "StatefulSet", metadata, scaling, child),
    )
    of_kind(
        args.autoscaling,
        QueueScaling,
        lambda scaling: queue_autoscaler(
            f"{name}-queue-autoscaler", metadata, scaling, triggers(metadata, scaling), child
        ),
    )


def _repository_volume(repository: VolumeRepositoryArgs) -> k8s.core.v1.VolumeArgs:
    return k8s.core.v1.VolumeArgs(
        name="models",
        persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(
            claim_name=repository.claim, read_only=True
        ),
    )
