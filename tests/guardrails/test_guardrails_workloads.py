"""What pods on GPUs ask for and how many slices they take; probes, budgets, grace periods and autoscalers."""

from typing import Any

from tests.cases import GONE

from .stacks import (
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
    everything,
    in_small,
    kept,
    pod,
    settings,
    thing,
    without,
)

AGREE, CEILING = "gpu-pods-have-limit-selector-and-toleration-that-agree", "gpu-slices-stay-under-their-ceiling"
STATEFUL_SET, NAMESPACE = f"StatefulSet/{SMALL}", "Namespace/inference-prod"
SLICE = "nvidia.com/mig-1g.10gb"
CLAIMED = "preload-claimed"


def resources(**changes: dict[str, Any]) -> Edit:
    def edit(objects: Objects) -> None:
        for key, change in changes.items():
            container(objects, SMALL)["resources"][key].update(change)

    return edit


def limits(**devices: str) -> Edit:
    return in_small("containers/0/resources", {"limits": {"memory": "16Gi", **devices}, "requests": {"cpu": "2"}})


def scaled_by(kind: str, **bounds: int) -> Edit:
    target = {"kind": "StatefulSet", "name": SMALL}
    made = thing(kind, "scaler", spec={"scaleTargetRef": target, **bounds})
    return both(adding(made), at("StatefulSet", SMALL, "spec/replicas", GONE))


WHOLE = {"nvidia.com/gpu": "1"}

GPU_BROKEN = (
    *broken(AGREE, STATEFUL_SET, cases=[
        (in_small("tolerations", GONE), "does not tolerate the taint"),
        (in_small("tolerations/0/effect", "NoExecute"), "does not tolerate"),
        (in_small("tolerations/0/key", "nvidia.com/mig"), "does not tolerate"),
        (in_small("nodeSelector/nvidia.com~mig.strategy", "single"), "selects single"),
        (in_small("nodeSelector", GONE), "selects any"),
        (in_small("nodeSelector/nvidia.com~gpu.product", "A100-MIG-1g.10gb"), "strategy single"),
        (limits(**WHOLE), "nodes of MIG strategy mixed have none"),
        (both(limits(**WHOLE), in_small("nodeSelector", {"nvidia.com/mig.strategy": "single"})),
         "the product any says otherwise"),
        (both(limits(**WHOLE), in_small("nodeSelector", {"nvidia.com/gpu.product": "A100-MIG-1g.10gb"})),
         "selects MIG strategy none"),
        (both(limits(**{"nvidia.com/gpu.shared": "1"}), in_small("nodeSelector", GONE)),
         "does not select nodes that share"),
        (both(resources(limits={"nvidia.com/mig-2g.20gb": "1"}), lambda o: settings(o, gpuSlices=None)),
         "several kinds of devices"),
        (resources(requests={"nvidia.com/mig-2g.20gb": "1"}), "2g.20gb without a limit"),
        (resources(requests={SLICE: "2"}), "another number"),
    ]),
    Case(AGREE, at("Deployment", PROXY, "spec/template/spec/nodeSelector", {"nvidia.com/gpu.product": "A100"}),
        f"Deployment/{PROXY}", "asks for no GPU"),
    *broken(AGREE, f"StatefulSet/{CLAIMED}", base=everything, cases=[
        (without("ResourceClaimTemplate", f"{CLAIMED}-gpu"), "is not there"),
        (lambda objects: container(objects, CLAIMED)["resources"].pop("claims"), "no container uses"),
        (lambda objects: pod(objects, CLAIMED).pop("resourceClaims"), "which the pod does not have"),
    ]),
    *broken(CEILING, NAMESPACE, cases=[
        (lambda objects: settings(objects, gpuSlices=5), "6 GPU slices, and its ceiling is 5"),
        (at("StatefulSet", SMALL, "spec/replicas", 4), f"7 GPU slices, and its ceiling is 6: {SMALL} 4"),
        (resources(limits={SLICE: "2"}, requests={SLICE: "2"}), f"{SMALL} 6"),
        (scaled_by("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=4), f"{SMALL} 4"),
        (scaled_by("ScaledObject", minReplicaCount=1, maxReplicaCount=7), f"{SMALL} 7"),
        (scaled_by("ScaledObject"), f"{SMALL} 100"),
    ]),
    Case(CEILING, at("ResourceClaimTemplate", f"{CLAIMED}-gpu", "spec/spec/devices/requests/0/exactly/count", 80),
        NAMESPACE, f"its ceiling is 64: {CLAIMED} ", everything),
)  # fmt: skip
GPU_KEPT = (
    *kept(AGREE, [
        in_small("tolerations", [{"operator": "Exists"}]),
        in_small("tolerations", [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]),
        both(limits(**WHOLE), in_small("nodeSelector", GONE)),
        both(limits(**WHOLE), in_small("nodeSelector",
             {"nvidia.com/gpu.product": "A-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"})),
        both(limits(**{"nvidia.com/gpu.shared": "1"}), in_small("nodeSelector",
             {"nvidia.com/gpu.sharing-strategy": "mps"})),
        resources(requests={SLICE: "1"}),
        at("Deployment", PROXY, "spec/template/spec/nodeSelector", {"node.kubernetes.io/pool": "gpu-free"}),
    ]),
    *kept(CEILING, [
        lambda objects: settings(objects, gpuSlices=7),
        both(at("StatefulSet", SMALL, "spec/replicas", 400), lambda o: settings(o, gpuSlices=None)),
        at("StatefulSet", SMALL, "spec/replicas", 0),
        scaled_by("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=3),
    ]),
)  # fmt: skip


PODS, PROBES, BUDGET = (
    "pods-fulfil-pod-security-restricted",
    "every-container-has-probes",
    "every-workload-has-a-budget",
)
GRACE, SCALED = "grace-periods-hold-pause-and-stop", "autoscalers-own-the-number-of-replicas"
DEPLOYMENT = f"Deployment/{PROXY}"
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
    *GPU_BROKEN,
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
    *GPU_KEPT,
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
