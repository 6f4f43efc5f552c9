"""The Pod Security Standards, profile "restricted": held to the Kubernetes project's own checks."""

import json
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab import tools
from policies.guardrails.objects import TEMPLATES, pods
from policies.guardrails.rules.pod_security import SYSCTLS as SAFE_SYSCTLS
from policies.guardrails.rules.pod_security import violations
from tests.counts import examples

APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "example/main:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
SPEC: dict[str, Any] = {
    "containers": [CONTAINER],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


def pod(**changes: Any) -> dict[str, Any]:
    """A pod that fulfils the profile, with these keys of its spec changed."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "it"}, "spec": {**SPEC, **changes}}


def said_of(item: dict[str, Any]) -> list[str]:
    return [violation for each in pods([item]) for violation in violations(each)]


def test_we_agree_with_the_kubernetes_projects_own_examples() -> None:
    """What its admission is tested with: about eighty pods that break the profile, and twenty that fulfil it."""
    verdicts = {file: said_of(yaml.safe_load(file.read_text("utf-8"))) for file in tools.module_files("pod-security")}
    assert len(verdicts) > 90
    assert {file: said for file, said in verdicts.items() if bool(said) is not (file.parent.name == "fail")} == {}


def choices(*values: Any) -> st.SearchStrategy[Any]:
    """One of some values, nearly always the first: a pod is made of fifty of them, and few are to matter."""
    return st.sampled_from([*[values[0]] * 30 * len(values), *values])


def keys(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping of these keys, without those that are nothing."""
    made = st.fixed_dictionaries(strategies)
    return made.map(lambda tree: {key: value for key, value in tree.items() if value is not None})


def contexts(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """What a pod and its containers may both say."""
    profile = choices({"type": "RuntimeDefault"}, None, {"type": "Unconfined"}, LOCALHOST)
    return keys(
        runAsNonRoot=choices(True, None, False),
        runAsUser=choices(None, 1000, 0),
        seccompProfile=profile,
        appArmorProfile=choices(None, {"type": "RuntimeDefault"}, {"type": "Unconfined"}, LOCALHOST),
        seLinuxOptions=choices(None, {}, {"type": "container_t"}, {"type": "spc_t"}, {"user": "u"}, {"role": "r"}),
        windowsOptions=choices(None, {"hostProcess": False}, {"hostProcess": True}),
        **more,
    )


LOCALHOST = {"type": "Localhost", "localhostProfile": "a.json"}
HANDLERS = choices(
    None,
    {"httpGet": {"port": 80}},
    {"httpGet": {"port": 80, "host": "example.com"}},
    {"httpGet": {"port": 80, "host": "127.0.0.1"}},
    {"tcpSocket": {"port": 80, "host": ""}},
    {"tcpSocket": {"port": 80, "host": "10.0.0.1"}},
    {"exec": {"command": ["true"]}},
)
CONTAINERS = keys(
    name=st.just("main"),
    securityContext=contexts(
        allowPrivilegeEscalation=choices(False, None, True),
        privileged=choices(None, False, True),
        procMount=choices(None, "Default", "Unmasked"),
        capabilities=choices(
            {"drop": ["ALL"]},
            None,
            {"drop": ["NET_RAW"]},
            {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            {"add": ["NET_BIND_SERVICE"]},
        ),
    ),
    ports=choices(None, [{"containerPort": 80}], [{"containerPort": 80, "hostPort": 0}], [{"hostPort": 80}]),
    livenessProbe=HANDLERS,
    readinessProbe=HANDLERS,
    startupProbe=HANDLERS,
    lifecycle=keys(postStart=HANDLERS, preStop=HANDLERS),
)
VOLUMES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"emptyDir": {}}] * 90
    + [{kind: {}} for kind in ("configMap", "secret", "csi", "projected", "downwardAPI", "ephemeral", "image")]
    + [{kind: {}} for kind in ("hostPath", "nfs", "iscsi", "gitRepo", "rbd", "flexVolume", "portworxVolume")]
    + [{"persistentVolumeClaim": {"claimName": "c"}}]
)
SYSCTLS = choices(
    None, *([{"name": name, "value": "1"}] for name in (*SAFE_SYSCTLS, "kernel.msgmax", "net.core.somaxconn"))
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("it"), "annotations": choices({}, {APPARMOR: "runtime/default"}, {APPARMOR: "unconfined"})}
        ),
        "spec": keys(
            containers=st.lists(CONTAINERS, min_size=1, max_size=2),
            initContainers=st.lists(CONTAINERS, max_size=1),
            ephemeralContainers=st.lists(CONTAINERS, max_size=1),
            securityContext=contexts(sysctls=SYSCTLS),
            volumes=st.lists(VOLUMES.map(lambda source: {"name": "v", **source}), max_size=2),
            os=choices(None, {"name": "linux"}, {"name": "windows"}),
            hostUsers=choices(None, False, True),
            **{key: choices(None, False, True) for key in ("hostNetwork", "hostPID", "hostIPC")},
        ),
    }
)


@examples(100)
@given(st.lists(PODS, min_size=20, max_size=20))
def test_we_agree_with_the_kubernetes_projects_own_checks_about_any_pod(made: list[dict[str, Any]]) -> None:
    """The checks of its admission themselves, as a program: see lab/tools/pod-security."""
    asked = subprocess.run(
        [tools.path("pod-security-checks")],
        input="\n".join(map(json.dumps, made)),
        text=True,
        capture_output=True,
        check=True,
    )
    for each, line in zip(made, asked.stdout.splitlines(), strict=True):
        refusals, said = json.loads(line), said_of({"kind": "Pod", **each})
        assert bool(said) is bool(refusals), (each, refusals, said)


@pytest.mark.parametrize("kind", sorted(TEMPLATES))
def test_the_pod_template_of_every_workload_kind_is_looked_at(kind: str) -> None:
    def workload(template: dict[str, Any]) -> dict[str, Any]:
        for step in reversed(TEMPLATES[kind]):
            template = {step: template}
        return {"metadata": {"name": "it"}, **template, "kind": kind}

    assert said_of(workload(pod(hostPID=True))) == ["the pod sets hostPID"]
    assert said_of(workload(pod())) == []


def test_objects_without_pods_break_nothing_and_junk_does_not_crash() -> None:
    """What is malformed counts as absent, and what must be said is then missing."""
    assert said_of({"kind": "ConfigMap", "data": {"a": "b"}}) == []
    junk = {"kind": "Pod", "metadata": None, "spec": {"containers": ["x", {}], "volumes": "y", "securityContext": []}}
    assert "container None does not drop ALL capabilities" in said_of(junk)
