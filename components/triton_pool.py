"""A pool of Triton servers: replicas on one kind of slice, and beside each on-demand one its eviction policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input
from tidegate_contracts import eviction_process, triton

from . import pods
from .gpu_placement import GpuPlacement, GpuPlacementArgs
from .scaling import CpuScalingArgs, QueueScalingArgs, cpu_autoscaler, queue_autoscaler
from .values import Labels, each, either, joined, json_text, when

# Started by the kubelet only after the policy's start-up probe has passed, so the secret is there.
_WITH_POLICY = f'secret=$(cat "{eviction_process.CONTROL_SECRET_FILE}")'
# Nobody needs the control protocols of a server that polls: the secret is forgotten as soon as it is made.
_WITHOUT_POLICY = "secret=$(head -c 32 /dev/urandom | base64 | tr -d '\\n')"
_PROTOCOLS = ",".join(triton.RESTRICTED_PROTOCOLS)
_START = (
    # Without a secret Triton would be open to whoever sends none: rather no Triton.
    f' && [ -n "$secret" ] && exec tritonserver "$@"'
    f' "--http-restricted-api={_PROTOCOLS}:{triton.RESTRICTED_KEY}=$secret"'
    f' "--grpc-restricted-protocol={_PROTOCOLS}:{triton.RESTRICTED_KEY}=$secret"'
)


@dataclass(frozen=True, kw_only=True)
class EnvironmentVariableArgs:
    """One environment variable."""

    name: Input[str]
    value: Input[str]


@dataclass(frozen=True, kw_only=True)
class RepositoryVolumeArgs:
    """The dataset that holds the model repository."""

    claim_name: Input[str]
    sub_path: Input[str] | None = None


@dataclass(frozen=True, kw_only=True)
class SecretArgs:
    """An existing secret of the namespace."""

    secret: Input[str]


@dataclass(frozen=True, kw_only=True)
class EvictionPolicyArgs:
    """The eviction-policy container beside each Triton of an on-demand pool."""

    image: Input[str]
    resources: Input[Any]
    settings_name: Input[str]
    """Name of the ConfigMap with its settings."""
    settings: Mapping[str, Any]
    """`tidegate_contracts.eviction.EvictionSettings`, as it goes over the wire."""


@dataclass(frozen=True, kw_only=True)
class TritonPoolArgs:
    """One pool; times are seconds."""

    name: str
    headless_name: Input[str]
    namespace: Input[str]
    labels: Labels
    selector: Labels
    pod_labels: Labels
    service_account: Input[str]
    image: Input[str]
    arguments: Sequence[Input[str]]
    """Arguments of tritonserver, without those that restrict the control protocols."""
    environment: Sequence[EnvironmentVariableArgs] = ()
    placement: GpuPlacementArgs
    priority_class: Input[str] | None = None
    replicas: Input[int] | None = None
    """None where an autoscaler owns the number."""
    cpu_scaling: CpuScalingArgs | None = None
    queue_scaling: QueueScalingArgs | None = None
    max_unavailable: Input[int]
    shared_memory: Input[str]
    scratch: Input[str]
    repository_volume: RepositoryVolumeArgs | None = None
    """None where Triton reads object storage itself."""
    grpc_tls: SecretArgs | None = None
    eviction_policy: EvictionPolicyArgs | None = None
    startup_failures: Input[int]
    """Start-up probes, one every ten seconds, that may fail before a Triton counts as stuck."""
    pre_stop: Input[int]
    grace_period: Input[int]
    ready_timeout: str
    """How long an engine waits until the pool is ready, such as `1200s`."""
    update_timeout: str
    """How long it waits until an update has gone through all replicas."""


class TritonPool(pulumi.ComponentResource):
    """A StatefulSet of Tritons with its Services, budget and autoscaler."""

    def __init__(self, name: str, args: TritonPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the pool."""
        super().__init__("tidegate:components:TritonPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        placement = GpuPlacement(f"{name}-placement", args.placement, args.namespace, args.labels, child)
        settings = when(
            args.eviction_policy,
            lambda policy: k8s.core.v1.ConfigMap(
                f"{name}-eviction",
                metadata=pods.metadata(policy.settings_name, args.namespace, args.labels),
                data={eviction_process.SETTINGS_FILE: json_text(policy.settings)},
                opts=child,
            ),
        )
        self._services(name, args, child)
        k8s.apps.v1.StatefulSet(
            f"{name}-servers",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                service_name=args.headless_name,
                replicas=args.replicas,
                # Replicas share nothing: none needs to wait for another.
                pod_management_policy="Parallel",
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=args.selector),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(labels=args.pod_labels), spec=_pod(args, placement)
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=joined(when(settings, lambda made: [made])),
                custom_timeouts=_timeouts(args),
            ),
        )
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-budget",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec=pods.disruption_budget_spec(args.selector, args.max_unavailable),
            opts=child,
        )
        when(
            args.cpu_scaling,
            lambda scaling: cpu_autoscaler(
                f"{name}-autoscaler", args.name, args.namespace, args.labels, "StatefulSet", scaling, child
            ),
        )
        when(
            args.queue_scaling,
            lambda scaling: queue_autoscaler(
                f"{name}-queue-autoscaler", args.name, args.namespace, args.labels, scaling, child
            ),
        )
        self.register_outputs({})

    def _services(self, name: str, args: TritonPoolArgs, child: pulumi.ResourceOptions) -> None:
        ports = [
            pods.service_port("http", triton.HTTP_PORT, "http"),
            pods.service_port("grpc", triton.GRPC_PORT, "grpc"),
        ]
        k8s.core.v1.Service(
            f"{name}-service",
            metadata=pods.metadata(args.name, args.namespace, args.labels),
            spec=k8s.core.v1.ServiceSpecArgs(selector=args.selector, ports=ports),
            # Pulumi takes a Service for ready when its pods are: as long as for them.
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(custom_timeouts=_timeouts(args))),
        )
        lease = when(
            args.eviction_policy,
            lambda _: [pods.service_port("lease", eviction_process.LEASE_PORT, eviction_process.LEASE_PORT)],
        )
        k8s.core.v1.Service(
            f"{name}-headless",
            metadata=pods.metadata(args.headless_name, args.namespace, args.labels),
            spec=k8s.core.v1.ServiceSpecArgs(cluster_ip="None", selector=args.selector, ports=joined(ports, lease)),
            opts=child,
        )


def _timeouts(args: TritonPoolArgs) -> pulumi.CustomTimeouts:
    return pulumi.CustomTimeouts(create=args.ready_timeout, update=args.update_timeout)


def _pod(args: TritonPoolArgs, placement: GpuPlacement) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        service_account_name=args.service_account,
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=pods.pod_security_context(),
        node_selector=placement.node_selector,
        tolerations=placement.tolerations,
        topology_spread_constraints=pods.spread_over_nodes(args.selector),
        priority_class_name=args.priority_class,
        resource_claims=placement.resource_claims,
        termination_grace_period_seconds=args.grace_period,
        init_containers=when(args.eviction_policy, lambda policy: [_policy_sidecar(args, policy)]),
        containers=[_triton(args, placement)],
        volumes=joined(
            [pods.memory_volume("shm", args.shared_memory), pods.scratch_volume("tmp", args.scratch)],
            when(
                args.repository_volume,
                lambda repository: [
                    k8s.core.v1.VolumeArgs(
                        name="models",
                        persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(
                            claim_name=repository.claim_name, read_only=True
                        ),
                    )
                ],
            ),
            when(args.grpc_tls, lambda tls: [pods.secret_volume("tls", tls.secret)]),
            when(
                args.eviction_policy,
                lambda policy: [
                    pods.memory_volume("control", "1Mi"),
                    pods.config_volume("eviction-settings", policy.settings_name),
                    pods.scratch_volume("eviction-state", "64Mi"),
                ],
            ),
        ),
    )


def _triton(args: TritonPoolArgs, placement: GpuPlacement) -> k8s.core.v1.ContainerArgs:
    secret = either(args.eviction_policy, lambda _: _WITH_POLICY, lambda: _WITHOUT_POLICY)
    return k8s.core.v1.ContainerArgs(
        name="triton",
        image=args.image,
        # The shell puts the secret into the arguments, so that it stands in no manifest; Triton takes its place.
        command=["/bin/sh", "-c", f"{secret}{_START}", "tritonserver"],
        args=args.arguments,
        env=each(
            args.environment,
            lambda variable: k8s.core.v1.EnvVarArgs(name=variable.name, value=variable.value),
        ),
        ports=[
            pods.container_port("http", triton.HTTP_PORT),
            pods.container_port("grpc", triton.GRPC_PORT),
            pods.container_port("metrics", triton.METRICS_PORT),
        ],
        resources=placement.resources,
        security_context=pods.container_security_context(),
        startup_probe=pods.http_probe(
            triton.LIVE_PATH, "http", period_seconds=10, failure_threshold=args.startup_failures
        ),
        # Without strict readiness this stays true when a model fails to load.
        readiness_probe=pods.http_probe(triton.READY_PATH, "http", period_seconds=5, failure_threshold=3),
        # Patient: a big load can hold up Triton's HTTP front end for seconds.
        liveness_probe=pods.http_probe(
            triton.LIVE_PATH, "http", period_seconds=10, failure_threshold=6, timeout_seconds=10
        ),
        lifecycle=pods.pre_stop_sleep(args.pre_stop),
        volume_mounts=joined(
            [pods.mount("shm", "/dev/shm", read_only=False), pods.mount("tmp", "/tmp", read_only=False)],
            _repository_mounts(args),
            when(args.grpc_tls, lambda _: [pods.mount("tls", triton.TLS_ROOT)]),
            when(args.eviction_policy, lambda _: [pods.mount("control", eviction_process.CONTROL_ROOT)]),
        ),
    )


def _repository_mounts(args: TritonPoolArgs) -> list[k8s.core.v1.VolumeMountArgs] | None:
    return when(
        args.repository_volume,
        lambda repository: [
            k8s.core.v1.VolumeMountArgs(
                name="models", mount_path=triton.REPOSITORY_ROOT, sub_path=repository.sub_path, read_only=True
            )
        ],
    )


def _policy_sidecar(args: TritonPoolArgs, policy: EvictionPolicyArgs) -> k8s.core.v1.ContainerArgs:
    """Return the policy as a native sidecar: it starts before Triton and stops after it.

    It has no readiness probe on purpose: without the policy nothing is loaded, but what is resident still answers.
    """
    return k8s.core.v1.ContainerArgs(
        name="eviction-policy",
        image=policy.image,
        restart_policy="Always",
        command=["python", "-m", eviction_process.MODULE, "serve"],
        ports=[
            pods.container_port("lease", eviction_process.LEASE_PORT),
            pods.container_port("policy-admin", eviction_process.ADMIN_PORT),
        ],
        resources=policy.resources,
        security_context=pods.container_security_context(),
        startup_probe=pods.http_probe(
            eviction_process.STARTED_PATH, "policy-admin", period_seconds=1, failure_threshold=60
        ),
        liveness_probe=pods.http_probe(
            eviction_process.LIVE_PATH, "policy-admin", period_seconds=10, failure_threshold=3
        ),
        volume_mounts=joined(
            [
                pods.mount("control", eviction_process.CONTROL_ROOT, read_only=False),
                pods.mount("eviction-settings", eviction_process.SETTINGS_ROOT),
                pods.mount("eviction-state", eviction_process.STATE_ROOT, read_only=False),
            ],
            _repository_mounts(args),
            when(args.grpc_tls, lambda _: [pods.mount("tls", triton.TLS_ROOT)]),
        ),
    )
