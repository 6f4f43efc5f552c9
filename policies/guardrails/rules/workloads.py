"""Workloads: their images stay, they say when they are well, and one owner has their number."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..objects import Environment, Pod, at, mapping, mappings, matches, name_of, number, text
from ..rule import Breach, guardrail

_NOTHING = re.compile(r"0+(\.0*)?[a-zA-Z]*")
_CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(control-plane|master|etcd)")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@guardrail(
    "Every image is named by its digest",
    "Run `tidegate pin` where the registry can be reached; in a values file, write image: repository:tag@sha256:…. To "
    "render without a registry, say guardrails: {severities: {images-are-pinned-by-digest: advisory}}: a cluster takes "
    "no image without a digest all the same.",
    shared="advisory",
)
def images_are_pinned_by_digest(environment: Environment) -> Iterator[Breach]:
    """A tag can be moved: what runs then is not what was tested."""
    for pod in environment.pods:
        for image in dict.fromkeys(text(one.get("image")) for one in pod.containers):
            if not _DIGEST.search(image):
                yield Breach(pod.maker, f"image {image or '(none)'} has no digest")


@guardrail(
    "Every main container has a readiness and a liveness probe, every native sidecar a liveness probe",
    "Give it the probe that is missing.",
    shared="advisory",
    local="advisory",
)
def every_container_has_probes(environment: Environment) -> Iterator[Breach]:
    """Without them a stuck process is never restarted, and a request is sent to one that is not there yet."""
    for pod in environment.workloads:
        for one in (*pod.main_containers, *pod.sidecars):
            probes = ["livenessProbe"] if one in pod.sidecars else ["readinessProbe", "livenessProbe"]
            if missing := [probe for probe in probes if not one.get(probe)]:
                yield Breach(pod.maker, f"container {one.get('name')} has no {' and no '.join(missing)}")


@guardrail(
    "Every workload has one PodDisruptionBudget, which allows one pod to be evicted, but not all of several",
    "Give it one PodDisruptionBudget with a maxUnavailable of at least 1 and less than its replicas.",
    shared="advisory",
    local="advisory",
)
def every_workload_has_a_budget(environment: Environment) -> Iterator[Breach]:
    """Without one, or with one that lets all go, drains of several nodes take all replicas at once.

    With one that lets no pod go, no node is drained.
    """
    budgets = environment.of_kind("PodDisruptionBudget")
    for pod in environment.workloads:
        ours = [item for item in budgets if matches(at(item, "spec", "selector"), pod.labels)]
        if len(ours) != 1:
            yield Breach(pod.maker, f"it has {len(ours) or 'no'} PodDisruptionBudget{'s' if len(ours) > 1 else ''}")
        elif not _lets_go(ours[0], number(at(pod.maker, "spec", "replicas"))):
            yield Breach(ours[0], f"it lets no pod of {name_of(pod.maker)} go, so no node is ever drained")
        elif _lets_all_go(ours[0], least := _least_replicas(environment, pod)):
            yield Breach(ours[0], f"it lets all {least} pods of {name_of(pod.maker)} go at once")


@guardrail(
    "Every container has a limit of memory, and every emptyDir a limit of size",
    "Give the container limits.memory, and the volume a sizeLimit.",
    shared="advisory",
    local="advisory",
)
def memory_and_scratch_have_limits(environment: Environment) -> Iterator[Breach]:
    """Without them one model that leaks takes the memory or the disk of the whole node.

    The kubelet then evicts pods of others.
    """
    for pod in environment.pods:
        together = at(pod.spec, "resources", "limits", "memory")  # Of the whole pod, since Kubernetes 1.34.
        for one in (*pod.init_containers, *pod.main_containers):
            limit = at(one, "resources", "limits", "memory") or together
            if not limit or _NOTHING.fullmatch(str(limit)):
                yield Breach(pod.maker, f"container {one.get('name')} has no limit of memory")
        for volume in mappings(pod.spec.get("volumes")):
            limit = at(volume, "emptyDir", "sizeLimit")
            if "emptyDir" in volume and (not limit or _NOTHING.fullmatch(str(limit))):
                yield Breach(pod.maker, f"volume {volume.get('name')} has no limit of size")


@guardrail(
    "No pod tolerates every taint, runs on the control plane's nodes, bypasses the scheduler, or has a system priority",
    "Name the taints of the nodes that are meant, and let the scheduler choose.",
    shared="mandatory",
    local="advisory",
)
def pods_go_only_where_they_are_meant_to(environment: Environment) -> Iterator[Breach]:
    """A model server beside an API server shares its kernel.

    With the system's priority it drives out what runs the cluster.
    """
    for pod in environment.pods:
        for one in mappings(pod.spec.get("tolerations")):
            key = text(one.get("key"))
            if not key:
                yield Breach(pod.maker, "it tolerates every taint")
            elif _CONTROL_PLANE.fullmatch(key):
                yield Breach(pod.maker, f"it tolerates {key}")
        if node := pod.spec.get("nodeName"):
            yield Breach(pod.maker, f"it names node {node}, past the scheduler")
        if (priority := text(pod.spec.get("priorityClassName"))).startswith("system-"):
            yield Breach(pod.maker, f"its priority is the system's: {priority}")


def _lets_go(budget: Mapping[str, Any], replicas: int | None) -> bool:
    spec = mapping(budget.get("spec"))
    if "maxUnavailable" in spec:
        return spec["maxUnavailable"] not in (0, "0", "0%")
    least = spec.get("minAvailable")
    return least != "100%" and (replicas is None or replicas == 0 or (number(least) or 0) < replicas)


def _lets_all_go(budget: Mapping[str, Any], replicas: int) -> bool:
    spec = mapping(budget.get("spec"))
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if replicas < 2:
        return False
    return most == "100%" or (number(most) or 0) >= replicas or (most is None and least in (0, "0", "0%"))


def _least_replicas(environment: Environment, pod: Pod) -> int:
    """Return how many replicas there are, or how many an autoscaler keeps; 0 where one may take all away.

    One is Kubernetes' own default.
    """
    for item in environment.autoscalers(pod):
        return number(at(item, "spec", "minReplicas") or at(item, "spec", "minReplicaCount")) or 0
    said = number(at(pod.maker, "spec", "replicas"))
    return 1 if said is None else said
