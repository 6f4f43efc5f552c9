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
    broken,
    container,
    in_small,
    kept,
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
    *broken(PODS, STATEFUL_SET, cases=[
        (in_small("hostNetwork", True), "the pod sets hostNetwork"),
        (in_small("initContainers/0/securityContext", GONE), "container eviction-policy does not"),
    ]),
    Case(PODS, adding(thing("Pod", "shell", spec={"containers": [{"name": "sh", "image": f"a@sha256:{'0' * 64}"}]})),
        "Pod/shell", "container sh does not drop ALL"),
    *broken(PODS, "CronJob/nightly", cases=[
        (adding(thing("CronJob", "nightly",
                      spec={"jobTemplate": {"spec": {"template": {"spec": {"hostPID": True, "containers": []}}}}})),
         "hostPID"),
    ]),
    *broken(PROBES, STATEFUL_SET, cases=[
        (in_small("containers/0/readinessProbe", GONE), "container triton has no readinessProbe"),
        (in_small("containers/0/livenessProbe", GONE), "triton has no livenessProbe"),
        (in_small("initContainers/0/livenessProbe", GONE), "eviction-policy has no livenessProbe"),
    ]),
    Case(PROBES, in_proxy("containers/0/livenessProbe", {}), DEPLOYMENT, "container proxy has no livenessProbe"),
    *broken(BUDGET, STATEFUL_SET, cases=[
        (without("PodDisruptionBudget", SMALL), "it has no PodDisruptionBudget"),
        (at("PodDisruptionBudget", SMALL, "spec/selector/matchLabels/tidegate.dev~pool", "x"), "no"),
        (adding(thing("PodDisruptionBudget", "second", spec={"selector": {"matchLabels": LABELS}})),
         "it has 2 PodDisruptionBudgets"),
    ]),
    *broken(BUDGET, f"PodDisruptionBudget/{SMALL}", cases=[
        (at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", 0), "lets no pod"),
        (at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", "0%"), "lets no"),
    ]),
    *broken(BUDGET, "PodDisruptionBudget/further", cases=[
        (budget(minAvailable=3), "lets no pod of ondemand-small go"),
        (budget(minAvailable="100%"), "lets no pod"),
    ]),
    *broken(GRACE, STATEFUL_SET, cases=[
        (in_small("terminationGracePeriodSeconds", 40), "and its pod has 40 s"),
        (in_small("terminationGracePeriodSeconds", GONE), "and its pod has 30 s"),
        (exit_timeout("3600"), "stops in 3600 s"),
        (both(exit_timeout(None), in_small("terminationGracePeriodSeconds", 35)), "stops in 30 s"),
        (in_small("containers/0/lifecycle/preStop", {"exec": {"command": ["sh", "-c", "sleep 600"]}}), "pauses 600 s"),
    ]),
    Case(GRACE, drain_seconds("600"), DEPLOYMENT, "stops in 600 s"),
    Case(SCALED, at("Deployment", PROXY, "spec/replicas", 3),
        DEPLOYMENT, "replicas is set, and a HorizontalPodAutoscaler"),
    *broken(SCALED, STATEFUL_SET, cases=[
        (adding(scaler("s", "ScaledObject")), "a ScaledObject owns the number"),
        (both(adding(scaler("a"), scaler("b", "ScaledObject")), at("StatefulSet", SMALL, "spec/replicas", GONE)),
         "it has 2 autoscalers: HorizontalPodAutoscaler, ScaledObject"),
    ]),
)  # fmt: skip
KEPT = (
    *kept(PODS, [
        in_small("containers/0/securityContext/capabilities/add", ["NET_BIND_SERVICE"]),
        in_small("volumes/0", {"name": "shm", "downwardAPI": {}}),
    ]),
    *kept(PROBES, [
        in_small("containers/0/startupProbe", GONE),
        in_small("initContainers/0/startupProbe", GONE),
    ]),
    *kept(BUDGET, [
        at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", "50%"),
        budget(minAvailable=2),
        both(budget(minAvailable=2), adding(scaler("s")), at("StatefulSet", SMALL, "spec/replicas", GONE)),
    ]),
    *kept(GRACE, [
        in_small("terminationGracePeriodSeconds", 1000),
        exit_timeout("5"),
        in_small("containers/0/lifecycle/preStop", {"exec": {"command": ["sleep", "5"]}}),
        drain_seconds("1"),
    ]),
    *kept(SCALED, [
        at("StatefulSet", MAIN, "spec/replicas", 1),
        both(adding(scaler("s", "ScaledObject")), at("StatefulSet", SMALL, "spec/replicas", GONE)),
    ]),
)  # fmt: skip
