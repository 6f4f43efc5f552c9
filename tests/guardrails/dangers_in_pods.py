"""Dangerous changes of pods, by the guardrail that must find each. After the documentation of Kubernetes and Triton."""

from collections.abc import Mapping, Sequence

from tests.cases import GONE

from .dangers import (
    POLLING,
    RESTRICTED,
    Danger,
    added,
    containers,
    controlled,
    models,
    more,
    mounts,
    polling,
    put,
    replaced,
    scratch,
    specs,
    tritons,
    whole,
)
from .stacks import Object

BARE = {"containers": [{"name": "c", "image": "busybox"}]}


def made_writable(found: tuple[Object, Object]) -> None:
    pod, volume = found
    volume["persistentVolumeClaim"].pop("readOnly", None)
    for one in (*pod.get("initContainers", []), *pod["containers"]):
        for mount in one.get("volumeMounts", []):
            mount.pop("readOnly", None)


def volume(**source: object) -> Danger:
    return f"a volume of kind {', '.join(source)}", specs, more("volumes", {"name": "danger", **source})


IN_PODS: Mapping[str, Sequence[Danger]] = {
    "images-are-pinned-by-digest": [
        ("an image by a tag that moves", containers, put("image", "nvcr.io/nvidia/tritonserver:latest")),
        ("no image at all", containers, put("image", GONE)),
    ],
    "pods-fulfil-pod-security-restricted": [
        ("the host's network", specs, put("hostNetwork", True)),
        ("a privileged container", containers, put("securityContext/privileged", True)),
        ("root is allowed", specs, put("securityContext/runAsNonRoot", False)),
        volume(hostPath={"path": "/"}),
        ("a container for debugging, as root", specs, put("ephemeralContainers", [{"name": "debug", "image": "sh"}])),
        ("a pod without a workload", whole, added("Pod", spec=BARE)),
        ("a pod on every node", whole, added("DaemonSet", spec={"template": {"spec": BARE}})),
        ("a pod by the clock", whole, added("CronJob", spec={"jobTemplate": {"spec": {"template": {"spec": BARE}}}})),
    ],
    "containers-are-confined": [
        ("its image can be written to", containers, put("securityContext/readOnlyRootFilesystem", False)),
        ("containers see each other's processes", specs, put("shareProcessNamespace", True)),
        ("root's group", containers, put("securityContext/runAsGroup", 0)),
        ("volumes of root's group", specs, put("securityContext/fsGroup", 0)),
        ("root's group among others", specs, put("securityContext/supplementalGroups", [1000, 0])),
        ("mounts that come out on the node", mounts, put("mountPropagation", "Bidirectional")),
        ("a raw disk", containers, put("volumeDevices", [{"name": "models", "devicePath": "/dev/xvda"}])),
    ],
    "tritons-keep-their-control-to-themselves": [
        ("no restricted API over HTTP", tritons, replaced("--http-restricted-api", "--http-header")),
        ("no restricted protocol over gRPC", tritons, replaced("--grpc-restricted-protocol", "--grpc-header")),
        *(
            (f"{name} is open", controlled, replaced(RESTRICTED, ",".join(set(RESTRICTED.split(",")) - {name})))
            for name in RESTRICTED.split(",")
        ),
        *(
            (f"{name} is open, where it polls", polling, replaced(POLLING, ",".join(set(POLLING.split(",")) - {name})))
            for name in POLLING.split(",")
        ),
        ("a polling server accepts loads", polling, more("args", "--model-control-mode=explicit")),
        ("started bare", tritons, put("command", ["tritonserver"])),
        ("a secret in the arguments", tritons, replaced("=$secret", "=letmein")),
        ("SageMaker's front end", tritons, more("args", "--allow-sagemaker=true")),
        ("Vertex AI's front end", tritons, more("args", "--allow-vertex-ai=1")),
        ("models are handed tokens over HTTP", tritons, more("args", "--http-header-forward-pattern=.*")),
        ("models are handed tokens over gRPC", tritons, more("args", "--grpc-header-forward-pattern=(?i)authoriz.*")),
        ("backends out of the repository", tritons, more("args", "--backend-directory=/models/backends")),
        ("backends that can be written to", tritons, more("args", "--backend-directory", "/tmp/backends")),
        ("agents that can be written to", tritons, more("args", "--repoagent-directory=/tmp")),
        ("caches out of shared memory", tritons, more("args", "--cache-directory=/dev/shm/caches")),
    ],
    "datasets-are-mounted-read-only": [("a server that can write to models", models, made_writable)],
    "memory-and-scratch-have-limits": [
        ("no limit at all", containers, put("resources/limits", GONE)),
        ("no limit of memory", containers, put("resources/limits/memory", GONE)),
        ("a limit of nothing is none", containers, put("resources/limits/memory", "0")),
        ("a disk without a limit", scratch, put("emptyDir", {})),
        ("memory without a limit, as a disk", scratch, put("emptyDir", {"medium": "Memory"})),
    ],
    "pods-go-only-where-they-are-meant-to": [
        ("it tolerates everything", specs, more("tolerations", {"operator": "Exists"})),
        ("it stays on nodes that fail", specs, more("tolerations", {"operator": "Exists", "effect": "NoExecute"})),
        (
            "it goes to the control plane",
            specs,
            more("tolerations", {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}),
        ),
        (
            "it goes to the control plane, the old way",
            specs,
            more("tolerations", {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}),
        ),
        ("it goes past the scheduler", specs, put("nodeName", "master-0")),
        ("it is the most important of all", specs, put("priorityClassName", "system-cluster-critical")),
    ],
}
