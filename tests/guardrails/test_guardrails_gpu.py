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
    container,
    everything,
    in_small,
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
    Case(AGREE, in_small("tolerations", GONE), STATEFUL_SET, "does not tolerate the taint"),
    Case(AGREE, in_small("tolerations/0/effect", "NoExecute"), STATEFUL_SET, "does not tolerate"),
    Case(AGREE, in_small("tolerations/0/key", "nvidia.com/mig"), STATEFUL_SET, "does not tolerate"),
    Case(AGREE, in_small("nodeSelector/nvidia.com~mig.strategy", "single"), STATEFUL_SET, "selects single"),
    Case(AGREE, in_small("nodeSelector", GONE), STATEFUL_SET, "selects any"),
    Case(AGREE, in_small("nodeSelector/nvidia.com~gpu.product", "A100-MIG-1g.10gb"), STATEFUL_SET, "strategy single"),
    Case(AGREE, limits(**WHOLE), STATEFUL_SET, "nodes of MIG strategy mixed have none"),
    Case(
        AGREE,
        both(limits(**WHOLE), in_small("nodeSelector", {"nvidia.com/mig.strategy": "single"})),
        STATEFUL_SET,
        "the product any says otherwise",
    ),
    Case(
        AGREE,
        both(limits(**WHOLE), in_small("nodeSelector", {"nvidia.com/gpu.product": "A100-MIG-1g.10gb"})),
        STATEFUL_SET,
        "selects MIG strategy none",
    ),
    Case(
        AGREE,
        both(limits(**{"nvidia.com/gpu.shared": "1"}), in_small("nodeSelector", GONE)),
        STATEFUL_SET,
        "does not select nodes that share",
    ),
    Case(
        AGREE,
        both(resources(limits={"nvidia.com/mig-2g.20gb": "1"}), lambda o: settings(o, gpuSlices=None)),
        STATEFUL_SET,
        "several kinds of devices",
    ),
    Case(AGREE, resources(requests={"nvidia.com/mig-2g.20gb": "1"}), STATEFUL_SET, "2g.20gb without a limit"),
    Case(AGREE, resources(requests={SLICE: "2"}), STATEFUL_SET, "another number"),
    Case(
        AGREE,
        at("Deployment", PROXY, "spec/template/spec/nodeSelector", {"nvidia.com/gpu.product": "A100"}),
        f"Deployment/{PROXY}",
        "asks for no GPU",
    ),
    Case(
        AGREE, without("ResourceClaimTemplate", f"{CLAIMED}-gpu"), f"StatefulSet/{CLAIMED}", "is not there", everything
    ),
    Case(
        AGREE,
        lambda objects: container(objects, CLAIMED)["resources"].pop("claims"),
        f"StatefulSet/{CLAIMED}",
        "no container uses",
        everything,
    ),
    Case(
        AGREE,
        lambda objects: pod(objects, CLAIMED).pop("resourceClaims"),
        f"StatefulSet/{CLAIMED}",
        "which the pod does not have",
        everything,
    ),
    Case(CEILING, lambda objects: settings(objects, gpuSlices=5), NAMESPACE, "6 GPU slices, and its ceiling is 5"),
    Case(
        CEILING,
        at("StatefulSet", SMALL, "spec/replicas", 4),
        NAMESPACE,
        f"7 GPU slices, and its ceiling is 6: {SMALL} 4",
    ),
    Case(CEILING, resources(limits={SLICE: "2"}, requests={SLICE: "2"}), NAMESPACE, f"{SMALL} 6"),
    Case(CEILING, scaler("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=4), NAMESPACE, f"{SMALL} 4"),
    Case(CEILING, scaler("ScaledObject", minReplicaCount=1, maxReplicaCount=7), NAMESPACE, f"{SMALL} 7"),
    Case(CEILING, scaler("ScaledObject"), NAMESPACE, f"{SMALL} 100"),
    Case(
        CEILING,
        at("ResourceClaimTemplate", f"{CLAIMED}-gpu", "spec/spec/devices/requests/0/exactly/count", 80),
        NAMESPACE,
        f"its ceiling is 64: {CLAIMED} ",
        everything,
    ),
)
KEPT = (
    Case(AGREE, in_small("tolerations", [{"operator": "Exists"}])),
    Case(AGREE, in_small("tolerations", [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}])),
    Case(AGREE, both(limits(**WHOLE), in_small("nodeSelector", GONE))),
    Case(
        AGREE,
        both(
            limits(**WHOLE),
            in_small("nodeSelector", {"nvidia.com/gpu.product": "A-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"}),
        ),
    ),
    Case(
        AGREE,
        both(
            limits(**{"nvidia.com/gpu.shared": "1"}),
            in_small("nodeSelector", {"nvidia.com/gpu.sharing-strategy": "mps"}),
        ),
    ),
    Case(AGREE, resources(requests={SLICE: "1"})),
    Case(AGREE, at("Deployment", PROXY, "spec/template/spec/nodeSelector", {"node.kubernetes.io/pool": "gpu-free"})),
    Case(CEILING, lambda objects: settings(objects, gpuSlices=7)),
    Case(CEILING, both(at("StatefulSet", SMALL, "spec/replicas", 400), lambda o: settings(o, gpuSlices=None))),
    Case(CEILING, at("StatefulSet", SMALL, "spec/replicas", 0)),
    Case(CEILING, scaler("HorizontalPodAutoscaler", minReplicas=1, maxReplicas=3)),
)
