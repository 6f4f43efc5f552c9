"""Probes, budgets, grace periods and autoscalers."""

from typing import Any

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
    container,
    in_small,
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
