"""The Pod Security Standards, profile "restricted", for the pod template of every workload kind, as one table.

After the Kubernetes documentation and what its admission does for policy version 1.36. Where restricted is stricter
than baseline on the same field, only the restricted rule stands here.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.schemas.kinds import Object, title

_TEMPLATE = ("spec", "template")
TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "Deployment": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "ScaledJob": ("spec", "jobTargetRef", "template"),
}
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

Place = tuple[str, Any]  # where in the pod, and the value there


@dataclass(frozen=True)
class Pod:
    """A pod template, and the places in it that rules look at."""

    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]
    containers: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @staticmethod
    def of(template: Mapping[str, Any]) -> "Pod":
        """Read a pod template; what is no mapping or no list where one belongs counts as absent."""
        spec = _mapping(template.get("spec"))
        containers = [
            (f"spec.{group}[{_mapping(container).get('name', index)}]", _mapping(container))
            for group in CONTAINERS
            for index, container in enumerate(_list(spec.get(group)))
        ]
        return Pod(_mapping(template.get("metadata")), spec, containers)

    def on_pod(self, *paths: str) -> Iterator[Place]:
        """Yield the values at these paths of the pod's spec; an absent one is None."""
        return (place for path in paths for place in _at(self.spec, path, "spec"))

    def on_containers(self, *paths: str) -> Iterator[Place]:
        """Yield the values at these paths of every init, normal and ephemeral container; an absent one is None."""
        return (place for where, box in self.containers for path in paths for place in _at(box, path, where))

    def on_both(self, *paths: str) -> Iterator[Place]:
        """Yield the values at these paths of the pod and of its containers, each on its own."""
        yield from self.on_pod(*paths)
        yield from self.on_containers(*paths)

    def inherited(self, path: str) -> Iterator[Place]:
        """Yield what counts for each container, its own value or else the pod's; and the pod's own when it is set."""
        ((pod_where, pod_value),) = _at(self.spec, path, "spec")
        if pod_value is not None:
            yield pod_where, pod_value
        for where, value in self.on_containers(path):
            yield where, pod_value if value is None else value

    @property
    def on_windows(self) -> bool:
        """Whether the pod says that it runs on Windows, where some fields do not exist."""
        return _mapping(self.spec.get("os")).get("name") == "windows"

    @property
    def in_user_namespace(self) -> bool:
        """Whether root in the pod is nobody on the host."""
        return self.spec.get("hostUsers") is False


@dataclass(frozen=True)
class Rule:
    """One control: where it looks, which values it allows there, and who is exempt."""

    control: str
    level: str
    places: Callable[[Pod], Iterable[Place]]
    allows: Callable[[Any], bool]
    wants: str
    exempt: Callable[[Pod], bool] = lambda _: False


def one_of(*values: Any) -> Callable[[Any], bool]:
    """Allow these values; False is not 0 here, and None stands for absent."""
    return lambda value: any(
        value == allowed and isinstance(value, bool) is isinstance(allowed, bool) for allowed in values
    )


SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_CONTEXT = "securityContext"

RULES = (
    Rule(
        "HostProcess",
        "baseline",
        lambda pod: pod.on_both(f"{_CONTEXT}.windowsOptions.hostProcess"),
        one_of(None, False),
        "must not be true",
    ),
    Rule(
        "Host Namespaces",
        "baseline",
        lambda pod: pod.on_pod("hostNetwork", "hostPID", "hostIPC"),
        one_of(None, False),
        "must not be true",
    ),
    Rule(
        "Privileged Containers",
        "baseline",
        lambda pod: pod.on_containers(f"{_CONTEXT}.privileged"),
        one_of(None, False),
        "must not be true",
    ),
    Rule(
        "HostPath Volumes",
        "baseline",
        lambda pod: pod.on_pod("volumes[*].hostPath"),
        one_of(None),
        "must not be set",
    ),
    Rule(
        "Host Ports",
        "baseline",
        lambda pod: pod.on_containers("ports[*].hostPort"),
        one_of(None, 0),
        "must not be set",
    ),
    Rule(
        "Host Probes / Lifecycle Hooks",
        "baseline",
        lambda pod: pod.on_containers(*(f"{on}.{by}.host" for on in HANDLERS for by in ("httpGet", "tcpSocket"))),
        one_of(None, ""),
        "must not be set",
    ),
    Rule(
        "AppArmor",
        "baseline",
        lambda pod: pod.on_both(f"{_CONTEXT}.appArmorProfile.type"),
        one_of(None, "RuntimeDefault", "Localhost"),
        "must be RuntimeDefault or Localhost",
    ),
    Rule(
        "AppArmor",
        "baseline",
        lambda pod: _annotations(pod, "container.apparmor.security.beta.kubernetes.io/"),
        lambda value: value in ("", "runtime/default") or str(value).startswith("localhost/"),
        "must be runtime/default or localhost/…",
    ),
    Rule(
        "SELinux",
        "baseline",
        lambda pod: pod.on_both(f"{_CONTEXT}.seLinuxOptions.type"),
        one_of(None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"),
        "must be one of the container types",
    ),
    Rule(
        "SELinux",
        "baseline",
        lambda pod: pod.on_both(f"{_CONTEXT}.seLinuxOptions.user", f"{_CONTEXT}.seLinuxOptions.role"),
        one_of(None, ""),
        "must not be set",
    ),
    Rule(
        "/proc Mount Type",
        "restricted",  # baseline lets it pass in a user namespace
        lambda pod: pod.on_containers(f"{_CONTEXT}.procMount"),
        one_of(None, "Default"),
        "must be Default",
    ),
    Rule(
        "Sysctls",
        "baseline",
        lambda pod: pod.on_pod(f"{_CONTEXT}.sysctls[*].name"),
        one_of(*SYSCTLS),
        "must be one of the safe ones",
    ),
    Rule(
        "Volume Types",
        "restricted",
        lambda pod: (
            (f"spec.volumes[{_mapping(volume).get('name', index)}]", sorted(_set(volume) - {"name"}))
            for index, volume in enumerate(_list(pod.spec.get("volumes")))
        ),
        lambda types: not types or bool(VOLUMES.intersection(types)),
        f"must be one of {', '.join(sorted(VOLUMES))}",
    ),
    Rule(
        "Privilege Escalation",
        "restricted",
        lambda pod: pod.on_containers(f"{_CONTEXT}.allowPrivilegeEscalation"),
        one_of(False),
        "must be false",
        exempt=lambda pod: pod.on_windows,
    ),
    Rule(
        "Running as Non-root",
        "restricted",
        lambda pod: pod.inherited(f"{_CONTEXT}.runAsNonRoot"),
        one_of(True),
        "must be true on the pod or on every container",
        exempt=lambda pod: pod.in_user_namespace,
    ),
    Rule(
        "Running as Non-root user",
        "restricted",
        lambda pod: pod.on_both(f"{_CONTEXT}.runAsUser"),
        lambda value: value is None or value != 0,
        "must not be 0",
        exempt=lambda pod: pod.in_user_namespace,
    ),
    Rule(
        "Seccomp",
        "restricted",
        lambda pod: pod.inherited(f"{_CONTEXT}.seccompProfile.type"),
        one_of("RuntimeDefault", "Localhost"),
        "must be RuntimeDefault or Localhost, on the pod or on every container",
        exempt=lambda pod: pod.on_windows,
    ),
    Rule(
        "Capabilities",
        "restricted",
        lambda pod: pod.on_containers(f"{_CONTEXT}.capabilities.drop"),
        lambda value: "ALL" in _list(value),
        "must include ALL",
        exempt=lambda pod: pod.on_windows,
    ),
    Rule(
        "Capabilities",
        "restricted",
        lambda pod: pod.on_containers(f"{_CONTEXT}.capabilities.add"),
        lambda value: set(_list(value)) <= {"NET_BIND_SERVICE"},
        "may name NET_BIND_SERVICE only",
        exempt=lambda pod: pod.on_windows,
    ),
)


def pod_security_violations(obj: Object) -> list[str]:
    """Return which controls of the profile "restricted" an object's pod template breaks, one line for each place.

    Kinds in TEMPLATES have a pod template; any other has none and breaks nothing.
    """
    path = TEMPLATES.get(str(obj.get("kind")))
    if path is None:
        return []
    template: Any = obj
    for step in path:
        template = _mapping(template).get(step)
    pod = Pod.of(_mapping(template))
    return [
        f"{title(obj)}: {rule.control} ({rule.level}): {where} is {_shown(value)}, {rule.wants}"
        for rule in RULES
        if not rule.exempt(pod)
        for where, value in rule.places(pod)
        if not rule.allows(value)
    ]


def _at(node: Any, path: str, where: str) -> Iterator[Place]:
    """Yield every value at a path such as 'ports[*].hostPort'; one None where a step is absent, none for no items."""
    if not path:
        yield where, node
        return
    step, _, rest = path.partition(".")
    name = step.removesuffix("[*]")
    value = _mapping(node).get(name)
    if name == step:
        yield from _at(value, rest, f"{where}.{name}")
        return
    for index, item in enumerate(_list(value)):
        yield from _at(item, rest, f"{where}.{name}[{_mapping(item).get('name', index)}]")


def _annotations(pod: Pod, prefix: str) -> Iterator[Place]:
    for name, value in _mapping(pod.metadata.get("annotations")).items():
        if name.startswith(prefix):
            yield f"metadata.annotations[{name}]", value


def _set(node: Any) -> set[str]:
    return {key for key, value in _mapping(node).items() if value is not None}


def _mapping(node: Any) -> Mapping[str, Any]:
    return node if isinstance(node, Mapping) else {}


def _list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _shown(value: Any) -> str:
    return "not set" if value is None else reprlib.repr(value)
