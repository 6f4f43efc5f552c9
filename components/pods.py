"""Parts that all pods share: an unprivileged user, and containers without rights."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input

from stacks.definition.base import CpuScaling, Resources
from stacks.definition.pods import Pods, Toleration

from .args import PRE_STOP_SECONDS
from .naming import Texts
from .values import either, entries, joined, merged, none_if_empty, when

USER_ID = 1000  # User and group of all containers. Triton's image has the user `triton-server` with this number.


def container_resources(
    wanted: Resources,
    scratch: Input[str],
    devices: dict[str, Any] | None = None,
    claims: Sequence[Any] | None = None,
    memory: Input[str] | None = None,
) -> k8s.core.v1.ResourceRequirementsArgs:
    """Return requests and limits. `scratch` is the limit of writes to the node's disk, including the log. `devices` are
    extended resources, which go into the limits. `memory` replaces the memory of `wanted`."""
    held = {"memory": wanted.memory if memory is None else memory, "ephemeral-storage": scratch}
    return k8s.core.v1.ResourceRequirementsArgs(
        requests={"cpu": wanted.cpu, **held},
        limits=merged(held, devices, when(wanted.cpu_limit, lambda limit: {"cpu": limit})),
        claims=claims,
    )


def toleration(taint: Toleration) -> k8s.core.v1.TolerationArgs:
    """Return a toleration in the form of Kubernetes."""
    return k8s.core.v1.TolerationArgs(
        key=taint.key,
        operator=either(
            taint.operator, lambda operator: operator, lambda: either(taint.value, lambda _: "Equal", lambda: "Exists")
        ),
        value=taint.value,
        effect=taint.effect,
    )


def pod_spec(account: Input[str], file_group: Input[int] | None = None, **more: Any) -> k8s.core.v1.PodSpecArgs:
    """Return a pod spec that meets its part of Pod Security "restricted" and has no token. `more` is added to the spec.
    Kubernetes gives `file_group` write access to volumes."""
    return k8s.core.v1.PodSpecArgs(
        service_account_name=account,
        automount_service_account_token=False,
        enable_service_links=False,
        security_context=k8s.core.v1.PodSecurityContextArgs(
            run_as_non_root=True,
            run_as_user=USER_ID,
            run_as_group=USER_ID,
            fs_group=file_group,
            seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
        ),
        **more,
    )


def container(
    name: str,
    image: Input[str],
    every_pod: Pods,
    ports: Mapping[str, int] | None = None,
    env: list[k8s.core.v1.EnvVarArgs] | None = None,
    **more: Any,
) -> k8s.core.v1.ContainerArgs:
    """Return a container that meets its part of "restricted", with named TCP ports and a read-only root. `env` are its
    variables in addition to those of every pod."""
    named = [
        k8s.core.v1.ContainerPortArgs(name=name, container_port=port, protocol="TCP")
        for name, port in (ports or {}).items()
    ]
    return k8s.core.v1.ContainerArgs(
        name=name,
        image=image,
        image_pull_policy=every_pod.image_pull_policy,
        env=none_if_empty(joined(env, variables(every_pod.environment))),
        ports=named or None,
        security_context=k8s.core.v1.SecurityContextArgs(
            allow_privilege_escalation=False,
            capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
            read_only_root_filesystem=True,
        ),
        **more,
    )


def variables(values: dict[str, str]) -> list[k8s.core.v1.EnvVarArgs] | None:
    """Return environment variables in the form of a container."""
    return entries(values, lambda name, value: k8s.core.v1.EnvVarArgs(name=name, value=value))


def pre_stop() -> k8s.core.v1.LifecycleArgs:
    """Return a pause before SIGTERM, in which the pod's address leaves Services and DNS."""
    return k8s.core.v1.LifecycleArgs(
        pre_stop=k8s.core.v1.LifecycleHandlerArgs(sleep=k8s.core.v1.SleepActionArgs(seconds=PRE_STOP_SECONDS))
    )


def new_before_old() -> k8s.apps.v1.DeploymentStrategyArgs:
    """Return a Deployment strategy that starts a new pod before it stops an old one."""
    return k8s.apps.v1.DeploymentStrategyArgs(
        type="RollingUpdate",
        rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
    )


def http_probe(
    path: str, port: str, every_seconds: int, failures: Input[int], *, timeout_seconds: int = 5
) -> k8s.core.v1.ProbeArgs:
    """Return an HTTP GET probe of `path` on a named port, which fails after `failures` failures in a row."""
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port),
        period_seconds=every_seconds,
        failure_threshold=failures,
        timeout_seconds=timeout_seconds,
    )


HTTPS = "https"
"""The `appProtocol` of a Service port with HTTP or gRPC over TLS. IANA registers it in lower case.

Traefik accepts no other spelling (getGRPCServiceProtocol in its pkg/provider/kubernetes/gateway/grpcroute.go). Istio
ignores case. GKE's Gateway needs upper case (its guide "Secure a Gateway", "Load balancer to application TLS"), but
Tidegate has no TLS behind a Gateway. GKE's Ingress reads an annotation, which `tidegate check` requires.
"""


def service_port(
    name: Input[str], port: Input[int], target: str | int, app_protocol: Input[str] | None = None
) -> k8s.core.v1.ServicePortArgs:
    """Return a Service's TCP port for a container port, by name or number. Istio reads `app_protocol`. Without it Istio
    assumes that a port named grpc has no TLS."""
    return k8s.core.v1.ServicePortArgs(
        name=name, port=port, target_port=target, protocol="TCP", app_protocol=app_protocol
    )


def spread_over_nodes(selector: Texts) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
    """Return constraints that spread pods over zones and nodes if possible."""
    return [
        k8s.core.v1.TopologySpreadConstraintArgs(
            max_skew=1,
            topology_key=key,
            when_unsatisfiable="ScheduleAnyway",
            label_selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selector),
        )
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]


def memory_volume(name: str, size: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return a volume in memory. Its files count against the container's memory limit."""
    return k8s.core.v1.VolumeArgs(
        name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=size)
    )


def scratch_volume(name: str, size: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return an empty volume on the node's disk, with the lifetime of the pod."""
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=size))


def config_volume(name: str, config_map: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return a ConfigMap as a volume. If you mount the whole directory, it follows changes."""
    return k8s.core.v1.VolumeArgs(name=name, config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(name=config_map))


def secret_volume(name: str, secret: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return a Secret as a volume that the pod's user can read."""
    return k8s.core.v1.VolumeArgs(
        name=name, secret=k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=0o444)
    )


def projected_volume(name: str, sources: list[k8s.core.v1.VolumeProjectionArgs]) -> k8s.core.v1.VolumeArgs:
    """Return files of several ConfigMaps and Secrets as one volume, which follows their changes."""
    return k8s.core.v1.VolumeArgs(name=name, projected=k8s.core.v1.ProjectedVolumeSourceArgs(sources=sources))


def mount(name: str, path: str, *, read_only: bool = True) -> k8s.core.v1.VolumeMountArgs:
    """Return a mount of a volume of the pod."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only or None)


def service(
    resource_name: str, metadata: Any, selector: Texts, ports: Sequence[Any], opts: pulumi.ResourceOptions, **more: Any
) -> k8s.core.v1.Service:
    """Declare a Service of pods. `more` is added to its spec."""
    spec = k8s.core.v1.ServiceSpecArgs(selector=selector, ports=ports, **more)
    return k8s.core.v1.Service(resource_name, metadata=metadata, spec=spec, opts=opts)


def disruption_budget(
    resource_name: str, metadata: Any, selector: Texts, max_unavailable: Input[int], opts: pulumi.ResourceOptions
) -> k8s.policy.v1.PodDisruptionBudget:
    """Declare a budget: the number of pods that node drains can evict at the same time."""
    spec = k8s.policy.v1.PodDisruptionBudgetSpecArgs(
        max_unavailable=max_unavailable, selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selector)
    )
    return k8s.policy.v1.PodDisruptionBudget(resource_name, metadata=metadata, spec=spec, opts=opts)


def cpu_autoscaler(
    resource_name: str, kind: str, metadata: Any, scaling: CpuScaling, opts: pulumi.ResourceOptions
) -> k8s.autoscaling.v2.HorizontalPodAutoscaler:
    """Declare an autoscaler of the workload of this kind with the same metadata."""
    target = k8s.autoscaling.v2.MetricTargetArgs(type="Utilization", average_utilization=scaling.cpu_percent)
    cpu = k8s.autoscaling.v2.ResourceMetricSourceArgs(name="cpu", target=target)
    return k8s.autoscaling.v2.HorizontalPodAutoscaler(
        resource_name,
        metadata=metadata,
        spec=k8s.autoscaling.v2.HorizontalPodAutoscalerSpecArgs(
            scale_target_ref=k8s.autoscaling.v2.CrossVersionObjectReferenceArgs(
                api_version="apps/v1", kind=kind, name=metadata.name
            ),
            min_replicas=scaling.min,
            max_replicas=scaling.max,
            metrics=[k8s.autoscaling.v2.MetricSpecArgs(type="Resource", resource=cpu)],
        ),
        opts=opts,
    )
