"""What every pod has in common: it runs as nobody in particular, and may do nothing in particular."""

import pulumi_kubernetes as k8s
from pulumi import Input

from .values import Labels

USER_ID = 1000
"""User and group of all containers; Triton's own image has it as `triton-server`."""


def pod_security_context() -> k8s.core.v1.PodSecurityContextArgs:
    """Return the pod's part of Pod Security "restricted"."""
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=USER_ID,
        run_as_group=USER_ID,
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security_context() -> k8s.core.v1.SecurityContextArgs:
    """Return the container's part of Pod Security "restricted", with a root file system that is read-only."""
    return k8s.core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
        read_only_root_filesystem=True,
    )


def http_probe(
    path: str,
    port: str,
    *,
    period_seconds: Input[int],
    failure_threshold: Input[int],
    timeout_seconds: Input[int] = 5,
) -> k8s.core.v1.ProbeArgs:
    """Return a probe by HTTP GET of `path` on a named port."""
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=port),
        period_seconds=period_seconds,
        failure_threshold=failure_threshold,
        timeout_seconds=timeout_seconds,
    )


def container_port(name: str, port: int) -> k8s.core.v1.ContainerPortArgs:
    """Return a named TCP port."""
    return k8s.core.v1.ContainerPortArgs(name=name, container_port=port, protocol="TCP")


def service_port(name: Input[str], port: Input[int], target: str | int) -> k8s.core.v1.ServicePortArgs:
    """Return a Service's TCP port that leads to a container's port, by name or number."""
    return k8s.core.v1.ServicePortArgs(name=name, port=port, target_port=target, protocol="TCP")


def pre_stop_sleep(seconds: Input[int]) -> k8s.core.v1.LifecycleArgs:
    """Return a pause before SIGTERM, in which the pod's address leaves Services and DNS."""
    return k8s.core.v1.LifecycleArgs(
        pre_stop=k8s.core.v1.LifecycleHandlerArgs(sleep=k8s.core.v1.SleepActionArgs(seconds=seconds))
    )


def spread_over_nodes(selector: Labels) -> list[k8s.core.v1.TopologySpreadConstraintArgs]:
    """Return constraints that spread pods over zones and nodes where that is possible."""
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
    """Return a volume in memory; what it holds counts against the container's memory limit."""
    return k8s.core.v1.VolumeArgs(
        name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(medium="Memory", size_limit=size)
    )


def scratch_volume(name: str, size: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return an empty volume on the node's disk that lives as long as the pod."""
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=size))


def config_volume(name: str, config_map: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return a ConfigMap as a volume; mounted as a whole folder, it follows changes."""
    return k8s.core.v1.VolumeArgs(name=name, config_map=k8s.core.v1.ConfigMapVolumeSourceArgs(name=config_map))


def secret_volume(name: str, secret: Input[str]) -> k8s.core.v1.VolumeArgs:
    """Return a Secret as a volume that the pod's user can read."""
    return k8s.core.v1.VolumeArgs(
        name=name, secret=k8s.core.v1.SecretVolumeSourceArgs(secret_name=secret, default_mode=0o444)
    )


def mount(name: str, path: str, *, read_only: bool = True) -> k8s.core.v1.VolumeMountArgs:
    """Return a mount of a pod's volume."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only or None)


def metadata(
    name: Input[str],
    namespace: Input[str],
    labels: Labels,
    annotations: Labels | None = None,
) -> k8s.meta.v1.ObjectMetaArgs:
    """Return an object's metadata."""
    return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace, labels=labels, annotations=annotations)


def disruption_budget_spec(selector: Labels, max_unavailable: Input[int]) -> k8s.policy.v1.PodDisruptionBudgetSpecArgs:
    """Return a budget of how many pods a node drain may take away at once."""
    return k8s.policy.v1.PodDisruptionBudgetSpecArgs(
        max_unavailable=max_unavailable, selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selector)
    )
