"""The Pod Security Standards, profile "restricted": every control by examples, and by the Kubernetes project's own."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from lab import tools
from tests import schemas
from tests.schemas.pod_security import RULES, TEMPLATES

CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "example/main:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SPEC: dict[str, Any] = {
    "containers": [CONTAINER],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


def pod(*changes: tuple[str, Any], metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a pod that fulfils the profile, with the values at these paths of its spec set, or removed when None."""
    spec = copy.deepcopy(SPEC)
    for path, value in changes:
        *steps, last = path.split(".")
        node: Any = spec
        for step in steps:
            node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
        if value is None:
            node.pop(last)
        else:
            node[last] = value
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it", **(metadata or {})}, "spec": spec}


ON_POD, ON_MAIN = "securityContext", "containers.0.securityContext"
APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"

# control, a pod that violates it, a pod that comes close and passes
EXAMPLES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "HostProcess",
        pod((f"{ON_MAIN}.windowsOptions", {"hostProcess": True})),
        pod((f"{ON_MAIN}.windowsOptions", {"hostProcess": False})),
    ),
    ("HostProcess", pod((f"{ON_POD}.windowsOptions", {"hostProcess": True})), pod((f"{ON_POD}.windowsOptions", {}))),
    ("Host Namespaces", pod(("hostNetwork", True)), pod(("hostNetwork", False))),
    ("Host Namespaces", pod(("hostPID", True)), pod(("hostPID", False))),
    ("Host Namespaces", pod(("hostIPC", True)), pod(("shareProcessNamespace", True))),
    ("Privileged Containers", pod((f"{ON_MAIN}.privileged", True)), pod((f"{ON_MAIN}.privileged", False))),
    (
        "HostPath Volumes",
        pod(("volumes", [{"name": "v", "hostPath": {"path": "/"}}])),
        pod(("volumes", [{"name": "v", "emptyDir": {"medium": "Memory"}}])),
    ),
    (
        "Host Ports",
        pod(("containers.0.ports", [{"containerPort": 80}, {"containerPort": 81, "hostPort": 81}])),
        pod(("containers.0.ports", [{"containerPort": 80, "hostPort": 0}])),
    ),
    (
        "Host Probes / Lifecycle Hooks",
        pod(("containers.0.livenessProbe", {"httpGet": {"port": 80, "host": "127.0.0.1"}})),
        pod(("containers.0.livenessProbe", {"httpGet": {"port": 80, "host": ""}})),
    ),
    (
        "Host Probes / Lifecycle Hooks",
        pod(("containers.0.lifecycle", {"preStop": {"httpGet": {"port": 80, "host": "example.com"}}})),
        pod(("containers.0.lifecycle", {"preStop": {"httpGet": {"port": 80}}})),
    ),
    (
        "AppArmor",
        pod((f"{ON_MAIN}.appArmorProfile", {"type": "Unconfined"})),
        pod((f"{ON_MAIN}.appArmorProfile", {"type": "Localhost"})),
    ),
    (
        "AppArmor",
        pod((f"{ON_POD}.appArmorProfile", {"type": "Unconfined"})),
        pod((f"{ON_POD}.appArmorProfile", {"type": "RuntimeDefault"})),
    ),
    (
        "AppArmor",
        pod(metadata={"annotations": {APPARMOR: "unconfined"}}),
        pod(metadata={"annotations": {APPARMOR: "localhost/x", "other": "unconfined"}}),
    ),
    (
        "SELinux",
        pod((f"{ON_MAIN}.seLinuxOptions", {"type": "spc_t"})),
        pod((f"{ON_MAIN}.seLinuxOptions", {"type": "container_t", "level": "s0:c1,c2"})),
    ),
    (
        "SELinux",
        pod((f"{ON_POD}.seLinuxOptions", {"user": "system_u"})),
        pod((f"{ON_POD}.seLinuxOptions", {"user": "", "role": ""})),
    ),
    ("SELinux", pod((f"{ON_MAIN}.seLinuxOptions", {"role": "r"})), pod((f"{ON_MAIN}.seLinuxOptions", {}))),
    ("/proc Mount Type", pod((f"{ON_MAIN}.procMount", "Unmasked")), pod((f"{ON_MAIN}.procMount", "Default"))),
    (
        "Sysctls",
        pod((f"{ON_POD}.sysctls", [{"name": "kernel.msgmax", "value": "1"}])),
        pod((f"{ON_POD}.sysctls", [{"name": "net.ipv4.tcp_rmem", "value": "1"}])),
    ),
    (
        "Volume Types",
        pod(("volumes", [{"name": "v", "nfs": {"server": "s", "path": "/"}}])),
        pod(("volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "w"}])),
    ),
    (
        "Privilege Escalation",
        pod((f"{ON_MAIN}.allowPrivilegeEscalation", None)),
        pod((f"{ON_MAIN}.allowPrivilegeEscalation", False)),
    ),
    (
        "Running as Non-root",
        pod((f"{ON_POD}.runAsNonRoot", None)),
        pod((f"{ON_POD}.runAsNonRoot", None), (f"{ON_MAIN}.runAsNonRoot", True)),
    ),
    (
        "Running as Non-root",
        pod((f"{ON_MAIN}.runAsNonRoot", False)),
        pod((f"{ON_POD}.runAsNonRoot", None), ("hostUsers", False)),
    ),
    (
        "Running as Non-root",
        pod((f"{ON_POD}.runAsNonRoot", False), (f"{ON_MAIN}.runAsNonRoot", True)),
        pod((f"{ON_MAIN}.runAsNonRoot", True)),
    ),
    ("Running as Non-root user", pod((f"{ON_POD}.runAsUser", 0)), pod((f"{ON_POD}.runAsUser", 65532))),
    (
        "Running as Non-root user",
        pod((f"{ON_MAIN}.runAsUser", 0)),
        pod((f"{ON_MAIN}.runAsUser", 0), ("hostUsers", False)),
    ),
    (
        "Seccomp",
        pod((f"{ON_POD}.seccompProfile", None)),
        pod((f"{ON_POD}.seccompProfile", None), (f"{ON_MAIN}.seccompProfile", {"type": "Localhost"})),
    ),
    (
        "Seccomp",
        pod((f"{ON_MAIN}.seccompProfile", {"type": "Unconfined"})),
        pod((f"{ON_MAIN}.seccompProfile", {"type": "RuntimeDefault"})),
    ),
    (
        "Seccomp",
        pod((f"{ON_POD}.seccompProfile", {"type": "Unconfined"}), (f"{ON_MAIN}.seccompProfile", {"type": "Localhost"})),
        pod((f"{ON_POD}.seccompProfile", {"type": "Localhost"})),
    ),
    (
        "Capabilities",
        pod((f"{ON_MAIN}.capabilities", {"drop": ["NET_RAW"]})),
        pod((f"{ON_MAIN}.capabilities", {"drop": ["NET_RAW", "ALL"]})),
    ),
    (
        "Capabilities",
        pod((f"{ON_MAIN}.capabilities.add", ["CHOWN"])),
        pod((f"{ON_MAIN}.capabilities.add", ["NET_BIND_SERVICE"])),
    ),
]


def controls(obj: Mapping[str, Any]) -> set[str]:
    """Return the names of the controls that an object violates."""
    return {line.split(": ")[1].rpartition(" (")[0] for line in schemas.pod_security_violations(obj)}


def test_every_control_has_an_example() -> None:
    """A rule without one could be wrong without anybody noticing."""
    assert {control for control, _, _ in EXAMPLES} == {rule.control for rule in RULES}


@pytest.mark.parametrize(("control", "bad", "good"), EXAMPLES, ids=[f"{n}-{row[0]}" for n, row in enumerate(EXAMPLES)])
def test_a_violation_is_found_and_what_comes_close_passes(
    control: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    """One violating and one passing pod for each field that a control looks at."""
    assert control in controls(bad)
    assert controls(bad) <= {control, "Volume Types"}  # a hostPath is of a wrong type, too
    assert schemas.pod_security_violations(good) == []


def test_we_agree_with_the_kubernetes_projects_own_examples() -> None:
    """What its admission is tested with: about eighty pods that break the profile, and twenty that fulfil it."""
    files = tools.module_files("pod-security")
    verdicts = {file: schemas.pod_security_violations(yaml.safe_load(file.read_text("utf-8"))) for file in files}
    assert len(verdicts) > 90
    assert {file: lines for file, lines in verdicts.items() if bool(lines) is not (file.parent.name == "fail")} == {}


@pytest.mark.parametrize("group", ["initContainers", "ephemeralContainers"])
def test_init_and_ephemeral_containers_are_held_to_the_same_rules(group: str) -> None:
    """A native sidecar is an init container."""
    bad = CONTAINER | {"name": "side", "securityContext": {"privileged": True}}
    obj = pod((group, [bad]))
    assert controls(obj) == {"Privileged Containers", "Privilege Escalation", "Capabilities"}
    assert all(f"spec.{group}[side]" in line for line in schemas.pod_security_violations(obj))
    assert schemas.pod_security_violations(pod((group, [CONTAINER | {"name": "side"}]))) == []


@pytest.mark.parametrize("kind", sorted(TEMPLATES))
def test_the_pod_template_of_every_workload_kind_is_checked(kind: str) -> None:
    """Wherever it lies in that kind; a workload without any pod template has nothing to break."""

    def workload(template: object) -> dict[str, Any]:
        for step in reversed(TEMPLATES[kind]):
            template = {step: template}
        assert isinstance(template, dict)
        return {"metadata": {"name": "it"}, **template, "kind": kind}

    assert controls(workload(pod(("hostPID", True)))) == {"Host Namespaces"}
    assert schemas.pod_security_violations(workload(pod())) == []


def test_a_violation_names_the_object_the_control_the_place_and_what_is_wanted() -> None:
    """Enough to mend it without reading the standard."""
    (line,) = schemas.pod_security_violations(pod(("hostNetwork", True), metadata={"namespace": "dev"}))
    assert line == "Pod dev/it: Host Namespaces (baseline): spec.hostNetwork is True, must not be true"
    (line,) = schemas.pod_security_violations(pod((f"{ON_MAIN}.allowPrivilegeEscalation", None)))
    assert "spec.containers[main].securityContext.allowPrivilegeEscalation is not set, must be false" in line


def test_objects_without_pods_break_nothing_and_junk_does_not_crash() -> None:
    """Schemas judge an object's shape; here junk counts as absent, and what must be set is then missing."""
    assert schemas.pod_security_violations({"kind": "ConfigMap", "data": {"a": "b"}}) == []
    junk = {"kind": "Pod", "metadata": None, "spec": {"containers": ["x", None], "volumes": "y", "securityContext": []}}
    assert "Privilege Escalation" in controls(junk)
