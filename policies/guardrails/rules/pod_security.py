"""The Pod Security Standards, profile "restricted": one function for each control, after the Kubernetes documentation.

Kubernetes' admission enforces them too, where the Namespace says so; here a breach is seen before a pod is refused.
Fields that only Windows has are looked at as everywhere else; what a Windows pod is let off, it is let off here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..findings import Breach
from ..objects import Environment, Pod, at, items, mapping, mappings, text

Where = tuple[str, Any]

VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        *(f"net.ipv4.ip_{name}" for name in ("local_port_range", "local_reserved_ports", "unprivileged_port_start")),
        "net.ipv4.ping_group_range",
        *(f"net.ipv4.tcp_{name}" for name in ("fin_timeout", "keepalive_intvl", "keepalive_probes", "keepalive_time")),
        *(f"net.ipv4.tcp_{name}" for name in ("rmem", "syncookies", "wmem")),
    )
)
SELINUX_TYPES = ("container_t", "container_init_t", "container_kvm_t", "container_engine_t")
PROFILES = ("RuntimeDefault", "Localhost")
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def pods_fulfil_pod_security_restricted(environment: Environment) -> Iterator[Breach]:
    """Every pod fulfils the Pod Security Standard "restricted".

    A namespace of Tidegate admits no other pod; without this the refusal comes only when somebody applies.
    """
    for pod in environment.pods:
        for control in CONTROLS:
            yield from (Breach(pod.maker, what) for what in control(pod))


def _contexts(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the security contexts of the pod and of each container, with where they stand."""
    yield "the pod", mapping(pod.spec.get("securityContext"))
    yield from _of_containers(pod)


def _of_containers(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in pod.containers:
        yield f"container {one.get('name')}", mapping(one.get("securityContext"))


def _effective(pod: Pod, *steps: str) -> Iterator[Where]:
    """Yield what the pod says, where it does, and what counts for each container: its own value, or else the pod's."""
    (_, of_pod), *of_containers = _contexts(pod)
    inherited = at(of_pod, *steps)
    if inherited is not None:
        yield "the pod", inherited
    for where, context in of_containers:
        own = at(context, *steps)
        yield where, inherited if own is None else own


def _windows(pod: Pod) -> bool:
    return bool(at(pod.spec, "os", "name") == "windows")


def _own_users(pod: Pod) -> bool:
    """Say whether root in the pod is nobody on the host."""
    return pod.spec.get("hostUsers") is False


def _set(places: Iterable[Where], what: str, *allowed: Any) -> Iterator[str]:
    """Yield the places whose value is neither absent nor one of those allowed."""
    for where, value in places:
        if value is not None and not any(value == one and type(value) is type(one) for one in allowed):
            yield f"{where} {what}"


def no_host_process(pod: Pod) -> Iterator[str]:
    """Windows: no container is a process of the host."""
    yield from _set(
        ((where, at(context, "windowsOptions", "hostProcess")) for where, context in _contexts(pod)),
        "runs as a process of the host (hostProcess)",
        False,
    )


def no_host_namespaces(pod: Pod) -> Iterator[str]:
    """The host's network, processes and IPC stay out of reach."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        yield from _set([("the pod", pod.spec.get(key))], f"sets {key}", False)


def no_privileged_containers(pod: Pod) -> Iterator[str]:
    """No container is privileged."""
    yield from _set(
        ((where, context.get("privileged")) for where, context in _of_containers(pod)), "is privileged", False
    )


def only_harmless_volumes(pod: Pod) -> Iterator[str]:
    """No hostPath, and only kinds of volumes that the standard names."""
    for volume in mappings(pod.spec.get("volumes")):
        kinds = {key for key, value in volume.items() if key != "name" and value is not None}
        if "hostPath" in kinds or (kinds and not kinds & VOLUMES):
            yield f"volume {volume.get('name')} is of kind {', '.join(sorted(map(str, kinds)))}"


def no_host_ports(pod: Pod) -> Iterator[str]:
    """No container takes a port of its node."""
    for one in pod.containers:
        for port in mappings(one.get("ports")):
            yield from _set([(f"container {one.get('name')}", port.get("hostPort"))], "takes a port of its node", 0)


def probes_ask_the_pod_itself(pod: Pod) -> Iterator[str]:
    """Probes and hooks name no other host (since Kubernetes 1.34)."""
    for one in pod.containers:
        lifecycle = mapping(one.get("lifecycle"))
        handlers = [one.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe")]
        handlers += [lifecycle.get(hook) for hook in ("postStart", "preStop")]
        for handler in handlers:
            for by in ("httpGet", "tcpSocket"):
                yield from _set(
                    [(f"container {one.get('name')}", at(handler, by, "host"))],
                    "asks another host in a probe or hook",
                    "",
                )


def apparmor_stays_on(pod: Pod) -> Iterator[str]:
    """AppArmor's profile is the runtime's or one of the node."""
    yield from _set(
        ((where, at(context, "appArmorProfile", "type")) for where, context in _contexts(pod)),
        "switches AppArmor off",
        *PROFILES,
    )
    for key, value in mapping(at(pod.template, "metadata", "annotations")).items():
        known = value in ("", "runtime/default") or str(value).startswith("localhost/")
        if str(key).startswith(_APPARMOR) and not known:
            yield f"annotation {key} switches AppArmor off"


def selinux_types_are_those_of_containers(pod: Pod) -> Iterator[str]:
    """SELinux: no user, no role, and a type of containers."""
    for where, context in _contexts(pod):
        options = mapping(context.get("seLinuxOptions"))
        yield from _set(
            [(where, options.get("type"))], "has another SELinux type than a container's", "", *SELINUX_TYPES
        )
        for key in ("user", "role"):
            yield from _set([(where, options.get(key))], f"sets an SELinux {key}", "")


def proc_is_masked(pod: Pod) -> Iterator[str]:
    """/proc is mounted as the runtime does by default."""
    yield from _set(
        ((where, context.get("procMount")) for where, context in _of_containers(pod)), "unmasks /proc", "Default"
    )


def only_safe_sysctls(pod: Pod) -> Iterator[str]:
    """Only kernel settings that concern the pod alone."""
    for one in mappings(at(pod.spec, "securityContext", "sysctls")):
        if one.get("name") not in SYSCTLS:
            yield f"the pod sets the sysctl {one.get('name')}"


def no_privilege_escalation(pod: Pod) -> Iterator[str]:
    """No process gains more rights than its parent."""
    for where, context in () if _windows(pod) else _of_containers(pod):
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{where} does not say allowPrivilegeEscalation: false"


def nobody_runs_as_root(pod: Pod) -> Iterator[str]:
    """runAsNonRoot is true, and no user id is 0; a pod with user namespaces of its own may be root in them."""
    if _own_users(pod):
        return
    for where, value in _effective(pod, "runAsNonRoot"):
        if value is not True:
            yield f"{where} does not say runAsNonRoot: true"
    for where, context in _contexts(pod):
        user = context.get("runAsUser")
        if user is not None and not isinstance(user, bool) and user == 0:
            yield f"{where} runs as user 0"


def seccomp_stays_on(pod: Pod) -> Iterator[str]:
    """The seccomp profile is the runtime's or one of the node, and it is said."""
    for where, value in () if _windows(pod) else _effective(pod, "seccompProfile", "type"):
        if value not in PROFILES:
            yield f"{where} has no seccompProfile of type RuntimeDefault or Localhost"


def all_capabilities_are_dropped(pod: Pod) -> Iterator[str]:
    """All capabilities are dropped, and at most NET_BIND_SERVICE is added."""
    for where, context in () if _windows(pod) else _of_containers(pod):
        if "ALL" not in items(at(context, "capabilities", "drop")):
            yield f"{where} does not drop ALL capabilities"
        if extra := [text(name) for name in items(at(context, "capabilities", "add")) if name != "NET_BIND_SERVICE"]:
            yield f"{where} adds the capabilities {', '.join(extra)}"


CONTROLS: tuple[Callable[[Pod], Iterator[str]], ...] = (
    no_host_process,
    no_host_namespaces,
    no_privileged_containers,
    only_harmless_volumes,
    no_host_ports,
    probes_ask_the_pod_itself,
    apparmor_stays_on,
    selinux_types_are_those_of_containers,
    proc_is_masked,
    only_safe_sysctls,
    no_privilege_escalation,
    nobody_runs_as_root,
    seccomp_stays_on,
    all_capabilities_are_dropped,
)
