"""Probes, budgets, grace periods, autoscalers and Pod Security."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.guardrails.objects import environments
from policies.guardrails.rules.pod_security import CONTROLS, pods_fulfil_pod_security_restricted
from tests import schemas
from tests.components.objects import named

from .stacks import (
    GONE,
    MAIN,
    PROXY,
    SMALL,
    Case,
    Edit,
    Object,
    Objects,
    adding,
    at,
    both,
    broken,
    container,
    in_small,
    kept,
    place,
    prod,
    thing,
    without,
)

PODS, PROBES, BUDGET = (
    "pods-fulfil-pod-security-restricted",
    "every-container-has-probes",
    "every-workload-has-a-budget",
)
GRACE, SCALED = "grace-periods-hold-pause-and-stop", "autoscalers-own-the-number-of-replicas"
STATEFUL_SET, DEPLOYMENT = f"StatefulSet/{SMALL}", f"Deployment/{PROXY}"
LABELS = {"app.kubernetes.io/instance": "prod", "tidegate.dev/pool": "small"}


def in_proxy(path: str, value: Any) -> Edit:
    return at("Deployment", PROXY, f"spec/template/spec/{path}", value)


def budget(**spec: Any) -> Edit:
    made = thing("PodDisruptionBudget", "further", spec={"selector": {"matchLabels": LABELS}, **spec})
    return both(without("PodDisruptionBudget", SMALL), adding(made))


def exit_timeout(value: str | None) -> Edit:
    def edit(objects: Objects) -> None:
        one = container(objects, SMALL)
        one["args"] = [word for word in one["args"] if not word.startswith("--exit-timeout-secs")]
        one["args"] += [] if value is None else [f"--exit-timeout-secs={value}"]

    return edit


def scaler(name: str, kind: str = "HorizontalPodAutoscaler", most: int = 3) -> Object:
    bounds = {"maxReplicas": most, "maxReplicaCount": most}
    return thing(kind, name, spec={"scaleTargetRef": {"kind": "StatefulSet", "name": SMALL}, **bounds})


def drain_seconds(value: str) -> Edit:
    return at("ConfigMap", "inference-proxy-settings", "data/TIDEGATE_PROXY_DRAIN_SECONDS", value)


BROKEN = (
    Case(PODS, in_small("hostNetwork", True), STATEFUL_SET, "the pod sets hostNetwork"),
    Case(PODS, in_small("initContainers/0/securityContext", GONE), STATEFUL_SET, "container eviction-policy does not"),
    Case(
        PODS,
        adding(thing("Pod", "shell", spec={"containers": [{"name": "sh", "image": f"a@sha256:{'0' * 64}"}]})),
        "Pod/shell",
        "container sh does not drop ALL",
    ),
    Case(
        PODS,
        adding(
            thing(
                "CronJob",
                "nightly",
                spec={"jobTemplate": {"spec": {"template": {"spec": {"hostPID": True, "containers": []}}}}},
            )
        ),
        "CronJob/nightly",
        "hostPID",
    ),
    Case(PROBES, in_small("containers/0/readinessProbe", GONE), STATEFUL_SET, "container triton has no readinessProbe"),
    Case(PROBES, in_small("containers/0/livenessProbe", GONE), STATEFUL_SET, "triton has no livenessProbe"),
    Case(
        PROBES, in_small("initContainers/0/livenessProbe", GONE), STATEFUL_SET, "eviction-policy has no livenessProbe"
    ),
    Case(PROBES, in_proxy("containers/0/livenessProbe", {}), DEPLOYMENT, "container proxy has no livenessProbe"),
    Case(BUDGET, without("PodDisruptionBudget", SMALL), STATEFUL_SET, "it has no PodDisruptionBudget"),
    Case(
        BUDGET, at("PodDisruptionBudget", SMALL, "spec/selector/matchLabels/tidegate.dev~pool", "x"), STATEFUL_SET, "no"
    ),
    Case(
        BUDGET,
        at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", 0),
        f"PodDisruptionBudget/{SMALL}",
        "lets no pod",
    ),
    Case(
        BUDGET, at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", "0%"), f"PodDisruptionBudget/{SMALL}", "lets no"
    ),
    Case(BUDGET, budget(minAvailable=3), "PodDisruptionBudget/further", "lets no pod of ondemand-small go"),
    Case(BUDGET, budget(minAvailable="100%"), "PodDisruptionBudget/further", "lets no pod"),
    Case(
        BUDGET,
        adding(thing("PodDisruptionBudget", "second", spec={"selector": {"matchLabels": LABELS}})),
        STATEFUL_SET,
        "it has 2 PodDisruptionBudgets",
    ),
    Case(GRACE, in_small("terminationGracePeriodSeconds", 40), STATEFUL_SET, "and its pod has 40 s"),
    Case(GRACE, in_small("terminationGracePeriodSeconds", GONE), STATEFUL_SET, "and its pod has 30 s"),
    Case(GRACE, exit_timeout("3600"), STATEFUL_SET, "stops in 3600 s"),
    Case(GRACE, both(exit_timeout(None), in_small("terminationGracePeriodSeconds", 35)), STATEFUL_SET, "stops in 30 s"),
    Case(
        GRACE,
        in_small("containers/0/lifecycle/preStop", {"exec": {"command": ["sh", "-c", "sleep 600"]}}),
        STATEFUL_SET,
        "pauses 600 s",
    ),
    Case(GRACE, drain_seconds("600"), DEPLOYMENT, "stops in 600 s"),
    Case(
        SCALED,
        at("Deployment", PROXY, "spec/replicas", 3),
        DEPLOYMENT,
        "replicas is set, and a HorizontalPodAutoscaler",
    ),
    Case(SCALED, adding(scaler("s", "ScaledObject")), STATEFUL_SET, "a ScaledObject owns the number"),
    Case(
        SCALED,
        both(adding(scaler("a"), scaler("b", "ScaledObject")), at("StatefulSet", SMALL, "spec/replicas", GONE)),
        STATEFUL_SET,
        "it has 2 autoscalers: HorizontalPodAutoscaler, ScaledObject",
    ),
)
KEPT = (
    Case(PODS, in_small("containers/0/securityContext/capabilities/add", ["NET_BIND_SERVICE"])),
    Case(PODS, in_small("volumes/0", {"name": "shm", "downwardAPI": {}})),
    Case(PROBES, in_small("containers/0/startupProbe", GONE)),
    Case(PROBES, in_small("initContainers/0/startupProbe", GONE)),
    Case(BUDGET, at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", "50%")),
    Case(BUDGET, budget(minAvailable=2)),
    Case(BUDGET, both(budget(minAvailable=2), adding(scaler("s")), at("StatefulSet", SMALL, "spec/replicas", GONE))),
    Case(GRACE, in_small("terminationGracePeriodSeconds", 1000)),
    Case(GRACE, exit_timeout("5")),
    Case(GRACE, in_small("containers/0/lifecycle/preStop", {"exec": {"command": ["sleep", "5"]}})),
    Case(GRACE, drain_seconds("1")),
    Case(SCALED, at("StatefulSet", MAIN, "spec/replicas", 1)),
    Case(SCALED, both(adding(scaler("s", "ScaledObject")), at("StatefulSet", SMALL, "spec/replicas", GONE))),
)


@broken(*BROKEN)
def test_a_guardrail_is_broken_by(case: Case) -> None:
    case.broken()


@kept(*KEPT)
def test_a_guardrail_is_kept_by(case: Case) -> None:
    case.kept()


# ---- Pod Security: every control, and two evaluations that were written apart agree ----

_BOX, _CONTEXT = "containers/0", "containers/0/securityContext"
PIECES: tuple[tuple[str, Any], ...] = (
    ("securityContext/windowsOptions", {"hostProcess": True}),
    ("securityContext/windowsOptions", {"hostProcess": False}),
    ("hostNetwork", True),
    ("hostPID", True),
    ("hostIPC", False),
    (f"{_CONTEXT}/privileged", True),
    ("volumes/0", {"name": "v", "hostPath": {"path": "/"}}),
    ("volumes/0", {"name": "v", "nfs": {"server": "a", "path": "/"}}),
    ("volumes/0", {"name": "v", "image": {}}),
    (f"{_BOX}/ports/0/hostPort", 80),
    (f"{_BOX}/ports/0/hostPort", 0),
    (f"{_BOX}/livenessProbe/httpGet/host", "example.com"),
    (f"{_BOX}/lifecycle/postStart", {"tcpSocket": {"host": "example.com", "port": 1}}),
    ("securityContext/appArmorProfile", {"type": "Unconfined"}),
    (f"{_CONTEXT}/appArmorProfile", {"type": "Localhost"}),
    ("securityContext/seLinuxOptions", {"type": "spc_t"}),
    ("securityContext/seLinuxOptions", {"type": "container_t"}),
    (f"{_CONTEXT}/seLinuxOptions", {"user": "root"}),
    (f"{_CONTEXT}/seLinuxOptions", {"role": "sysadm_r"}),
    (f"{_CONTEXT}/procMount", "Unmasked"),
    ("securityContext/sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    ("securityContext/sysctls", [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]),
    (f"{_CONTEXT}/allowPrivilegeEscalation", GONE),
    (f"{_CONTEXT}/allowPrivilegeEscalation", True),
    ("securityContext/runAsNonRoot", GONE),
    ("securityContext/runAsNonRoot", False),
    (f"{_CONTEXT}/runAsNonRoot", True),
    (f"{_CONTEXT}/runAsNonRoot", False),
    ("securityContext/runAsUser", 0),
    (f"{_CONTEXT}/runAsUser", 0),
    ("securityContext/seccompProfile", GONE),
    ("securityContext/seccompProfile/type", "Unconfined"),
    (f"{_CONTEXT}/seccompProfile", {"type": "Localhost"}),
    (f"{_CONTEXT}/capabilities", GONE),
    (f"{_CONTEXT}/capabilities/drop", ["NET_RAW"]),
    (f"{_CONTEXT}/capabilities/add", ["SYS_ADMIN", "NET_BIND_SERVICE"]),
    (f"{_CONTEXT}/capabilities/add", ["NET_BIND_SERVICE"]),
    ("hostUsers", False),
    ("os", {"name": "windows"}),
    ("../metadata/annotations", {"container.apparmor.security.beta.kubernetes.io/triton": "unconfined"}),
    ("../metadata/annotations", {"container.apparmor.security.beta.kubernetes.io/triton": "localhost/strict"}),
)


def changed(pieces: list[tuple[str, Any]]) -> Object:
    workload = copy.deepcopy(named(prod(), "StatefulSet", SMALL))
    for path, value in pieces:
        in_metadata = path.startswith("../")
        root = workload["spec"]["template"] if in_metadata else workload["spec"]["template"]["spec"]
        with_gone = value is GONE
        try:
            place(root, path.removeprefix("../"), copy.deepcopy(value) if not with_gone else GONE)
        except KeyError:
            assert with_gone  # another piece has taken it away already
    return workload


def ours(workload: Object) -> list[str]:
    return [breach.what for each in environments([workload]) for breach in pods_fulfil_pod_security_restricted(each)]


@given(st.lists(st.sampled_from(PIECES), max_size=4))
def test_two_evaluations_of_pod_security_agree_about_any_pod(pieces: list[tuple[str, Any]]) -> None:
    workload = changed(pieces)
    assert bool(ours(workload)) == bool(schemas.pod_security_violations(workload)), ours(workload)


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.__name__)
def test_every_control_of_pod_security_is_broken_by_a_piece_and_kept_by_another(control: Any) -> None:
    def says(piece: tuple[str, Any]) -> bool:
        return any(list(control(pod)) for each in environments([changed([piece])]) for pod in each.pods)

    answers = [says(piece) for piece in PIECES]
    assert True in answers
    assert False in answers
