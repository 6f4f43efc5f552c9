"""Workloads: pinned images, probes, disruption budgets, limits, and placement."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..objects import Environment, Pod, at, mapping, mappings, matches, name_of, number, text
from ..rule import Breach, guardrail

_NOTHING = re.compile(r"0+(\.0*)?[a-zA-Z]*")
_CONTROL_PLANE = re.compile(r"node-role\.kubernetes\.io/(control-plane|master|etcd)")
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@guardrail(
    "Every image has a digest",
    "Run `tidegate pin`. In a values file, set image: repository:tag@sha256:…. `tidegate up` requires a digest.",
    "To render without a registry, set guardrails: {severities: {images-are-pinned-by-digest: advisory}}.",
    shared="advisory",
)
def images_are_pinned_by_digest(environment: Environment) -> Iterator[Breach]:
    """A tag can move, so that another image runs than the one you tested."""
    for pod in environment.pods:
        for image in dict.fromkeys(text(one.get("image")) for one in pod.containers):
            if not _DIGEST.search(image):
                yield Breach(pod.maker, f"image {image or '(none)'} has no digest")


@guardrail(
    "Every main container has a readiness and a liveness probe, and every native sidecar a liveness probe",
    "Add the missing probe.",
    shared="advisory",
    local="advisory",
)
def every_container_has_probes(environment: Environment) -> Iterator[Breach]:
    """Kubernetes would never restart a stuck process, and send requests to one that is not ready."""
    for pod in environment.workloads:
        for one in (*pod.main_containers, *pod.sidecars):
            probes = ["livenessProbe"] if one in pod.sidecars else ["readinessProbe", "livenessProbe"]
            if missing := [probe for probe in probes if not one.get(probe)]:
                yield Breach(pod.maker, f"container {one.get('name')} has no {' and no '.join(missing)}")


@guardrail(
    "Every workload has one PodDisruptionBudget, which lets Kubernetes evict one pod but not all of several",
    "Add one PodDisruptionBudget with a maxUnavailable of at least 1 and less than the number of replicas.",
    shared="advisory",
    local="advisory",
)
def every_workload_has_a_budget(environment: Environment) -> Iterator[Breach]:
    """Otherwise draining several nodes evicts all replicas at the same time, or no node can be drained."""
    budgets = environment.of_kind("PodDisruptionBudget")
    for pod in environment.workloads:
        ours = [item for item in budgets if matches(at(item, "spec", "selector"), pod.labels)]
        if len(ours) != 1:
            yield Breach(pod.maker, f"it has {len(ours) or 'no'} PodDisruptionBudget{'s' if len(ours) > 1 else ''}")
        elif not _allows_one(ours[0], number(at(pod.maker, "spec", "replicas"))):
            yield Breach(ours[0], f"it allows no eviction of {name_of(pod.maker)}, so its nodes cannot be drained")
        elif _allows_all(ours[0], least := _least_replicas(environment, pod)):
            yield Breach(ours[0], f"it allows the eviction of all {least} pods of {name_of(pod.maker)} together")


@guardrail(
    "Every container has a memory limit, and every emptyDir a size limit",
    "Set limits.memory for the container and sizeLimit for the volume.",
    shared="advisory",
    local="advisory",
)
def memory_and_scratch_have_limits(environment: Environment) -> Iterator[Breach]:
    """One leaking model could use all memory or disk of the node, and the kubelet would evict other pods."""
    for pod in environment.pods:
        together = at(pod.spec, "resources", "limits", "memory")  # For the whole pod, since Kubernetes 1.34.
        for one in (*pod.init_containers, *pod.main_containers):
            limit = at(one, "resources", "limits", "memory") or together
            if not limit or _NOTHING.fullmatch(str(limit)):
                yield Breach(pod.maker, f"container {one.get('name')} has no memory limit")
        for volume in mappings(pod.spec.get("volumes")):
            limit = at(volume, "emptyDir", "sizeLimit")
            if "emptyDir" in volume and (not limit or _NOTHING.fullmatch(str(limit))):
                yield Breach(pod.maker, f"volume {volume.get('name')} has no size limit")


@guardrail(
    "No pod tolerates every taint, runs on the control plane's nodes, bypasses the scheduler, or has a system priority",
    "Tolerate only the taints of the nodes that you want. Remove nodeName and the system priority.",
    shared="mandatory",
    local="advisory",
)
def pods_go_only_where_they_are_meant_to(environment: Environment) -> Iterator[Breach]:
    """A model server on a control-plane node shares its kernel with the API server. A system priority can evict the
    pods that run the cluster."""
    for pod in environment.pods:
        for one in mappings(pod.spec.get("tolerations")):
            key = text(one.get("key"))
            if not key:
                yield Breach(pod.maker, "it tolerates every taint")
            elif _CONTROL_PLANE.fullmatch(key):
                yield Breach(pod.maker, f"it tolerates {key}")
        if node := pod.spec.get("nodeName"):
            yield Breach(pod.maker, f"it sets nodeName to {node}, which bypasses the scheduler")
        if (priority := text(pod.spec.get("priorityClassName"))).startswith("system-"):
            yield Breach(pod.maker, f"it has the system priority {priority}")


def _allows_one(budget: Mapping[str, Any], replicas: int | None) -> bool:
    spec = mapping(budget.get("spec"))
    if "maxUnavailable" in spec:
        return spec["maxUnavailable"] not in (0, "0", "0%")
    least = spec.get("minAvailable")
    return least != "100%" and (replicas is None or replicas == 0 or (number(least) or 0) < replicas)


def _allows_all(budget: Mapping[str, Any], replicas: int) -> bool:
    spec = mapping(budget.get("spec"))
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if replicas < 2:
        return False
    return most == "100%" or (number(most) or 0) >= replicas or (most is None and least in (0, "0", "0%"))


def _least_replicas(environment: Environment, pod: Pod) -> int:
    """Return the replicas, or the minimum of an autoscaler, which can be 0. Kubernetes defaults to 1."""
    for item in environment.autoscalers(pod):
        return number(at(item, "spec", "minReplicas") or at(item, "spec", "minReplicaCount")) or 0
    replicas = number(at(pod.maker, "spec", "replicas"))
    return 1 if replicas is None else replicas
