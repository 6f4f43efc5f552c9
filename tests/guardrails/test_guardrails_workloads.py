"""What pods on GPUs ask for and how many slices they take; probes, budgets and autoscalers."""

from typing import Any

from tests.cases import GONE

from .stacks import (
    MAIN,
    PROXY,
    SMALL,
    Broken,
    Edit,
    Kept,
    Object,
    Objects,
    adding,
    at,
    both,
    container,
    everything,
    in_small,
    setting,
    thing,
    without,
)

AGREE, CEILING = "gpu-pods-have-limit-selector-and-toleration-that-agree", "gpu-slices-stay-under-their-ceiling"
STATEFUL_SET, DEPLOYMENT = f"StatefulSet/{SMALL}", f"Deployment/{PROXY}"
NAMESPACE = "Namespace/inference-prod"
SLICE, OTHER_SLICE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
CLAIMED = "preload-claimed"


def resources(**changes: dict[str, Any]) -> Edit:
    def edit(objects: Objects) -> None:
        for key, change in changes.items():
            container(objects, SMALL)["resources"][key].update(change)

    return edit


def replicas(count: Any) -> Edit:
    return at("StatefulSet", SMALL, "spec/replicas", count)


def limits(**devices: str) -> Edit:
    return in_small("containers/0/resources", {"limits": {"memory": "16Gi", **devices}, "requests": {"cpu": "2"}})


def in_claimed(path: str, value: Any) -> Edit:
    return at("StatefulSet", CLAIMED, f"spec/template/spec/{path}", value)


def claiming(count: int) -> Edit:
    return at("ResourceClaimTemplate", f"{CLAIMED}-gpu", "spec/spec/devices/requests/0/exactly/count", count)


def in_proxy(path: str, value: Any) -> Edit:
    return at("Deployment", PROXY, f"spec/template/spec/{path}", value)


def whole_gpu(selector: Any) -> Edit:
    return both(limits(**{"nvidia.com/gpu": "1"}), in_small("nodeSelector", selector))


def shared_gpu(selector: Any) -> Edit:
    return both(limits(**{"nvidia.com/gpu.shared": "1"}), in_small("nodeSelector", selector))


def scaled_by(kind: str, **bounds: int) -> Edit:
    target = {"kind": "StatefulSet", "name": SMALL}
    made = thing(kind, "scaler", spec={"scaleTargetRef": target, **bounds})
    return both(adding(made), replicas(GONE))


GPU_BROKEN: Broken = {
    (AGREE, STATEFUL_SET): [
        (in_small("tolerations", GONE), "does not tolerate the taint"),
        (in_small("tolerations/0/key", "nvidia.com/mig"), "does not tolerate"),
        (in_small("nodeSelector/nvidia.com~mig.strategy", "single"), "strategy single"),
        (whole_gpu({"nvidia.com/mig.strategy": "single"}), "the product any says otherwise"),
        (whole_gpu({"nvidia.com/gpu.product": "A100-MIG-1g.10gb"}), "selects MIG strategy none"),
        (shared_gpu(GONE), "does not select nodes that share"),
        (both(resources(limits={OTHER_SLICE: "1"}), setting(gpuSlices=None)), "several kinds of devices"),
        (resources(requests={OTHER_SLICE: "1"}), "2g.20gb without a limit"),
    ],
    (AGREE, DEPLOYMENT): [(in_proxy("nodeSelector", {"nvidia.com/gpu.product": "A100"}), "asks for no GPU")],
    (AGREE, f"StatefulSet/{CLAIMED}"): [
        (without("ResourceClaimTemplate", f"{CLAIMED}-gpu"), "is not there", everything),
        (in_claimed("containers/0/resources/claims", GONE), "no container uses", everything),
        (in_claimed("resourceClaims", GONE), "which the pod does not have", everything),
    ],
    (CEILING, NAMESPACE): [
        (setting(gpuSlices=5), "6 GPU slices, and its ceiling is 5"),
        (replicas(4), f"7 GPU slices, and its ceiling is 6: {SMALL} 4"),
        (scaled_by("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=4), f"{SMALL} 4"),
        (scaled_by("ScaledObject", minReplicaCount=1, maxReplicaCount=7), f"{SMALL} 7"),
        (scaled_by("ScaledObject"), f"{SMALL} 100"),
        (claiming(80), f"its ceiling is 64: {CLAIMED} ", everything),
    ],
}
GPU_KEPT: Kept = {
    AGREE: [
        in_small("tolerations", [{"key": "nvidia.com/gpu", "operator": "Exists"}]),
        in_small("tolerations", [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]),
        in_small("nodeSelector", GONE),
        whole_gpu(GONE),
        whole_gpu({"nvidia.com/gpu.product": "A-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"}),
        shared_gpu({"nvidia.com/gpu.sharing-strategy": "mps"}),
        resources(requests={SLICE: "1"}),
        in_proxy("nodeSelector", {"node.kubernetes.io/pool": "gpu-free"}),
    ],
    CEILING: [
        setting(gpuSlices=7),
        both(replicas(400), setting(gpuSlices=None)),
        replicas(0),
        scaled_by("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=3),
    ],
}


PODS, PROBES = "pods-fulfil-pod-security-restricted", "every-container-has-probes"
BUDGET = "every-workload-has-a-budget"
SCALED = "autoscalers-own-the-number-of-replicas"
LABELS = {"app.kubernetes.io/instance": "prod", "tidegate.dev/pool": "small"}


def budget(name: str, **spec: Any) -> Object:
    return thing("PodDisruptionBudget", name, spec={"selector": {"matchLabels": LABELS}, **spec})


def budgeted(**spec: Any) -> Edit:
    return both(without("PodDisruptionBudget", SMALL), adding(budget("further", **spec)))


def scaler(name: str, kind: str = "HorizontalPodAutoscaler", most: int = 3) -> Object:
    bounds = {"maxReplicas": most, "maxReplicaCount": most}
    return thing(kind, name, spec={"scaleTargetRef": {"kind": "StatefulSet", "name": SMALL}, **bounds})


BROKEN: Broken = {
    **GPU_BROKEN,
    (PROBES, STATEFUL_SET): [
        (in_small("containers/0/readinessProbe", GONE), "container triton has no readinessProbe"),
        (in_small("containers/0/livenessProbe", GONE), "triton has no livenessProbe"),
    ],
    (PROBES, DEPLOYMENT): [(in_proxy("containers/0/livenessProbe", {}), "container proxy has no livenessProbe")],
    (BUDGET, STATEFUL_SET): [
        (without("PodDisruptionBudget", SMALL), "it has no PodDisruptionBudget"),
        (at("PodDisruptionBudget", SMALL, "spec/selector/matchLabels/tidegate.dev~pool", "x"), "no"),
        (adding(budget("second")), "it has 2 PodDisruptionBudgets"),
    ],
    (BUDGET, f"PodDisruptionBudget/{SMALL}"): [
        (at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", 0), "lets no pod"),
    ],
    (BUDGET, "PodDisruptionBudget/further"): [
        (budgeted(minAvailable=3), "lets no pod of ondemand-small go"),
    ],
    (SCALED, DEPLOYMENT): [
        (at("Deployment", PROXY, "spec/replicas", 3), "replicas is set, and a HorizontalPodAutoscaler"),
    ],
    (SCALED, STATEFUL_SET): [
        (adding(scaler("s", "ScaledObject")), "a ScaledObject owns the number"),
        (
            both(adding(scaler("a"), scaler("b", "ScaledObject")), replicas(GONE)),
            "HorizontalPodAutoscaler, ScaledObject",
        ),
    ],
}
KEPT: Kept = {
    **GPU_KEPT,
    PODS: [
        in_small("containers/0/securityContext/capabilities/add", ["NET_BIND_SERVICE"]),
        in_small("volumes/0", {"name": "shm", "downwardAPI": {}}),
    ],
    PROBES: [
        in_small("containers/0/startupProbe", GONE),
    ],
    BUDGET: [
        at("PodDisruptionBudget", SMALL, "spec/maxUnavailable", "50%"),
        budgeted(minAvailable=2),
        both(budgeted(minAvailable=2), adding(scaler("s")), replicas(GONE)),
    ],
    SCALED: [
        at("StatefulSet", MAIN, "spec/replicas", 1),
        both(adding(scaler("s", "ScaledObject")), replicas(GONE)),
    ],
}
