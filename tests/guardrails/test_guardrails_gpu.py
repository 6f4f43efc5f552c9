"""What GPU pods ask for, where they may run, and how many slices an environment takes."""

from typing import Any

from .stacks import (
    GONE,
    PROXY,
    SMALL,
    Case,
    Edit,
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


def scaler(kind: str, **bounds: int) -> Edit:
    target = {"kind": "StatefulSet", "name": SMALL}
    made = thing(kind, "scaler", spec={"scaleTargetRef": target, **bounds})
    return both(adding(made), at("StatefulSet", SMALL, "spec/replicas", GONE))


WHOLE = {"nvidia.com/gpu": "1"}

BROKEN = (
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
        (scaler("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=4), f"{SMALL} 4"),
        (scaler("ScaledObject", minReplicaCount=1, maxReplicaCount=7), f"{SMALL} 7"),
        (scaler("ScaledObject"), f"{SMALL} 100"),
    ]),
    Case(CEILING, at("ResourceClaimTemplate", f"{CLAIMED}-gpu", "spec/spec/devices/requests/0/exactly/count", 80),
        NAMESPACE, f"its ceiling is 64: {CLAIMED} ", everything),
)  # fmt: skip
KEPT = (
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
        scaler("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=3),
    ]),
)  # fmt: skip
