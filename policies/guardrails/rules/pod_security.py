"""The Pod Security Standards, profile "restricted", as one table.

Kubernetes' admission enforces the profile too, if the Namespace has its label. These rules find a breach earlier.
Kubernetes' own checks are a Go library, but `tidegate` and the policy pack need only Python. So the tests compare this
table with that library (lab/tools/pod-security), and with the Kubernetes project's examples.

The exemptions of Windows pods are those of the standard.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..objects import Environment, Pod, at, items, labels_of, mapping, mappings, number, text
from ..rule import Breach, guardrail

Place = tuple[str, Any]  # A place in words, and its value, or None if the value is not set.

VOLUMES = frozenset(
    ("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected")
) | {"secret"}
SYSCTLS = (
    "kernel.shm_rmid_forced",
    *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "local_reserved_ports", "unprivileged_port_start")),
    "net.ipv4.ping_group_range",
    *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "keepalive_intvl", "keepalive_probes", "keepalive_time")),
    *(f"net.ipv4.tcp_{name}" for name in ("rmem", "syncookies", "wmem")),
)
_SELINUX = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_PROFILES = ("RuntimeDefault", "Localhost")
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_ESCALATES = "does not set allowPrivilegeEscalation: false"
_NO_SECCOMP = "has no seccompProfile of type RuntimeDefault or Localhost"
_ENFORCE = "pod-security.kubernetes.io/enforce"
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def _pod(pod: Pod, path: str) -> Iterator[Place]:
    yield "the pod", at(pod.spec, *path.split("."))


def _containers(pod: Pod, path: str) -> Iterator[Place]:
    for one in pod.containers:
        yield f"container {one.get('name')}", at(one, *path.split("."))


def _of_containers(pod: Pod, path: str) -> Iterator[Place]:
    return _containers(pod, f"securityContext.{path}")


def _contexts(pod: Pod, path: str) -> Iterator[Place]:
    yield from _pod(pod, f"securityContext.{path}")
    yield from _of_containers(pod, path)


def _effective(pod: Pod, path: str) -> Iterator[Place]:
    """Yield the value of the pod's context, if it is set, and the effective value of each container."""
    (where, of_pod), *of_containers = _contexts(pod, path)
    if of_pod is not None:
        yield where, of_pod
    for where, own in of_containers:
        yield where, of_pod if own is None else own


def _volumes(pod: Pod, _: str) -> Iterator[Place]:
    """Yield the kinds of each volume."""
    for volume in mappings(pod.spec.get("volumes")):
        kinds = {str(key) for key, value in volume.items() if key != "name" and value is not None}
        yield f"volume {volume.get('name')}", ", ".join(sorted(kinds))


def _items(pod: Pod, path: str) -> Iterator[Place]:
    """Yield a key of each item of a container's list, such as `ports.hostPort`."""
    name, key = path.split(".")
    for where, found in _containers(pod, name):
        yield from ((where, one.get(key)) for one in mappings(found))


def _annotations(pod: Pod, prefix: str) -> Iterator[Place]:
    for key, value in mapping(at(pod.template, "metadata", "annotations")).items():
        if str(key).startswith(prefix):
            yield f"annotation {key}", value


def _sysctls(pod: Pod, key: str) -> Iterator[Place]:
    for one in mappings(at(pod.spec, "securityContext", "sysctls")):
        yield "the pod", one.get(key)


def _added_capabilities(pod: Pod, path: str) -> Iterator[Place]:
    for where, names in _of_containers(pod, path):
        yield where, ", ".join(text(name) for name in items(names) if name != "NET_BIND_SERVICE")


def _has_all(names: Any) -> bool:
    return "ALL" in items(names)


def _is_confined(profile: Any) -> bool:
    return profile in ("", "runtime/default") or str(profile).startswith("localhost/")


def _harmless(kinds: str) -> bool:
    return not kinds or ("hostPath" not in kinds and not VOLUMES.isdisjoint(kinds.split(", ")))


def _on_windows(pod: Pod) -> bool:
    return bool(at(pod.spec, "os", "name") == "windows")


def _in_user_namespace(pod: Pod) -> bool:
    """Return whether root in the pod has no rights on the host."""
    return pod.spec.get("hostUsers") is False


class Check(NamedTuple):
    """The places that a control checks, the values allowed there, and the text for a place with another `{value}`."""

    places: Callable[[Pod, str], Iterator[Place]]
    path: str
    allowed: tuple[Any, ...] | Callable[[Any], bool]
    what: str
    exempt: Callable[[Pod], bool] = lambda _: False

    def violations(self, pod: Pod) -> Iterator[str]:
        for where, value in () if self.exempt(pod) else self.places(pod, self.path):
            if not (self.allowed(value) if callable(self.allowed) else _is_one_of(value, self.allowed)):
                yield f"{where} {self.what.format(value=value)}"


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Return whether a value is among those that are allowed. False is not 0 here."""
    return any(value == one and type(value) is type(one) for one in allowed)


CONTROLS: Mapping[str, tuple[Check, ...]] = {
    "HostProcess (baseline)": (
        Check(_contexts, "windowsOptions.hostProcess", (None, False), "runs as a process of the host (hostProcess)"),
    ),
    "Host Namespaces (baseline)": tuple(
        Check(_pod, key, (None, False), f"sets {key}") for key in ("hostNetwork", "hostPID", "hostIPC")
    ),
    "Privileged Containers (baseline)": (Check(_of_containers, "privileged", (None, False), "is privileged"),),
    "HostPath Volumes (baseline), Volume Types (restricted)": (Check(_volumes, "", _harmless, "is of kind {value}"),),
    "Host Ports (baseline)": (Check(_items, "ports.hostPort", (None, 0), "uses a port of its node"),),
    "Host Probes and Lifecycle Hooks (baseline)": tuple(
        Check(_containers, f"{handler}.{by}.host", (None, ""), "sets the host of a probe or hook")
        for handler in _HANDLERS
        for by in ("httpGet", "tcpSocket")
    ),
    "AppArmor (baseline)": (
        Check(_contexts, "appArmorProfile.type", (None, *_PROFILES), "disables AppArmor"),
        Check(_annotations, _APPARMOR, _is_confined, "disables AppArmor"),
    ),
    "SELinux (baseline)": (
        Check(_contexts, "seLinuxOptions.type", (None, "", *_SELINUX), "has an SELinux type that is not a container's"),
        Check(_contexts, "seLinuxOptions.user", (None, ""), "sets an SELinux user"),
        Check(_contexts, "seLinuxOptions.role", (None, ""), "sets an SELinux role"),
    ),
    "/proc Mount Type (baseline)": (Check(_of_containers, "procMount", (None, "Default"), "unmasks /proc"),),
    "Sysctls (baseline)": (Check(_sysctls, "name", SYSCTLS, "sets the sysctl {value}"),),
    "Privilege Escalation (restricted)": (
        Check(_of_containers, "allowPrivilegeEscalation", (False,), _ESCALATES, _on_windows),
    ),
    "Running as Non-root, Running as Non-root user (restricted)": (
        Check(_effective, "runAsNonRoot", (True,), "does not set runAsNonRoot: true", _in_user_namespace),
        Check(_contexts, "runAsUser", lambda user: user is False or user != 0, "runs as user 0", _in_user_namespace),
    ),
    "Seccomp (restricted)": (Check(_effective, "seccompProfile.type", _PROFILES, _NO_SECCOMP, _on_windows),),
    "Capabilities (restricted)": (
        Check(_of_containers, "capabilities.drop", _has_all, "does not drop ALL capabilities", _on_windows),
        Check(_added_capabilities, "capabilities.add", ("",), "adds the capabilities {value}", _on_windows),
    ),
}
"""The checks of each control, by its name and level in the Pod Security Standards."""


@guardrail(
    'Every pod meets the Pod Security Standard "restricted"',
    "Change the pod to meet the standard: https://kubernetes.io/docs/concepts/security/pod-security-standards.",
    shared="mandatory",
    local="mandatory",
)
def pods_fulfil_pod_security_restricted(environment: Environment) -> Iterator[Breach]:
    """The namespace admits no other pods. Tidegate checks every control of the standard."""
    for pod in environment.pods:
        yield from (Breach(pod.maker, what) for what in violations(pod))


@guardrail(
    'The Namespace enforces the latest version of the Pod Security Standard "restricted"',
    "Set the label pod-security.kubernetes.io/enforce: restricted on the Namespace. Remove an older enforce-version.",
    shared="mandatory",
    local="mandatory",
)
def namespaces_enforce_pod_security_restricted(environment: Environment) -> Iterator[Breach]:
    """Guardrails check only declared objects. Kubernetes' admission checks every pod in the namespace."""
    namespace = environment.itself
    if not environment.of_kind("Namespace"):
        yield Breach(namespace, "the stack does not declare it, so its Pod Security profile is unknown")
        return
    enforced, version = (labels_of(namespace).get(f"{_ENFORCE}{ending}") for ending in ("", "-version"))
    if enforced != "restricted":
        yield Breach(namespace, f"it enforces {f'the profile {enforced}' if enforced else 'no Pod Security profile'}")
    elif version not in (None, "latest"):
        yield Breach(namespace, f"it enforces the profile of Kubernetes {version} instead of the latest one")


_BEYOND: tuple[Check, ...] = (
    Check(_of_containers, "readOnlyRootFilesystem", (True,), "can write to its root file system"),
    Check(_pod, "shareProcessNamespace", (None, False), "shares its process namespace among containers"),
    Check(_contexts, "runAsGroup", lambda group: group is None or number(group) != 0, "runs as group 0"),
    Check(_pod, "securityContext.fsGroup", lambda group: group is None or number(group) != 0, "has group 0"),
    Check(
        _pod,
        "securityContext.supplementalGroups",
        lambda groups: all(number(group) != 0 for group in items(groups)),
        "has group 0",
    ),
    Check(_items, "volumeMounts.mountPropagation", (None, "None"), "shares mounts with its node ({value})"),
    Check(_containers, "volumeDevices", lambda devices: not devices, "uses a raw block device"),
)


@guardrail(
    "No container writes to its image, sees other containers' processes, runs as group 0, or shares mounts or raw "
    "devices",
    "Mount an emptyDir where a container must write. Remove the other setting that the finding names.",
    shared="mandatory",
    local="advisory",
)
def containers_are_confined(environment: Environment) -> Iterator[Breach]:
    """The standard "restricted" does not require this. It keeps an attacker from changing files, and from reading the
    eviction policy's secret in /proc."""
    for pod in environment.pods:
        yield from (Breach(pod.maker, what) for check in _BEYOND for what in check.violations(pod))


def violations(pod: Pod) -> list[str]:
    """Return what breaks the profile "restricted" in a pod template."""
    return [what for checks in CONTROLS.values() for check in checks for what in check.violations(pod)]
