"""Whether the workloads of a stack are healthy: all wanted pods exist, are of the newest revision, and are ready."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stacks.definition.proxy import PROXY
from stacks.problems import escaped, shortened

from .kubectl import Kubectl

Object = Mapping[str, Any]
WORKLOADS = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
_LONGEST = 240


class Absent(str):
    """The line of a workload that does not exist, or not yet."""


@dataclass(frozen=True)
class Target:
    """The workloads and the proxy port to check in a data plane, taken from a stack's rendered objects."""

    namespace: str
    workloads: tuple[tuple[str, str], ...]  # Kind and name of each.
    port: int  # Of the proxy's Service.
    https: bool  # Whether that port speaks HTTPS.


def target_of(objects: Sequence[Object]) -> Target:
    """Return the target for a stack's objects."""
    service = next(item for item in objects if item["kind"] == "Service" and item["metadata"]["name"] == PROXY)
    port = next(port for port in service["spec"]["ports"] if port["name"] in ("http", "https"))
    workloads = tuple((item["kind"], item["metadata"]["name"]) for item in objects if item["kind"] in WORKLOADS)
    return Target(service["metadata"]["namespace"], workloads, port["port"], port["name"] == "https")


def lacking(kubectl: Kubectl, target: Target) -> list[str]:
    """Return one line for each workload that is not healthy. No lines mean that all are."""
    found = kubectl.find([*WORKLOADS.values(), "pods"], "--namespace", target.namespace)
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in found}
    # Terminating pods do not count.
    pods = [item for item in found if item["kind"] == "Pod" and "deletionTimestamp" not in item["metadata"]]
    lines: list[str] = []
    for kind, name in target.workloads:
        workload = by_name.get((kind, name))
        if workload is None:
            lines.append(Absent(f"{kind} {name} does not exist"))
            continue
        wanted = workload["spec"]["selector"].get("matchLabels", {}).items()
        own = [pod for pod in pods if wanted <= pod["metadata"].get("labels", {}).items()]
        what = _behind(workload)
        if not what and name == PROXY:
            ready = sum(map(is_ready, own))
            if not ready:
                what = "no pod is ready"
            elif ready < len(own):
                what = f"{ready} of {len(own)} pods are ready"
        if what:
            reasons: dict[str, str] = {}
            for pod in own:
                if reason := _reason(pod):  # each reason once, with the first pod that has it
                    reasons.setdefault(reason, f"pod {pod['metadata']['name']}: {reason}")
            lines.append(f"{kind} {name}: {'; '.join([what, *reasons.values()][:3])}")
    return lines


def warnings(kubectl: Kubectl, target: Target) -> dict[str, str]:
    """Return the latest Warning event of each workload, as a line, and its time. Includes ReplicaSets of Deployments.
    Only these events report a pod that cannot be created (quota, admission)."""

    def when(event: Object) -> str:
        series = event.get("series") or {}
        times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
        return next((time for time in times if time), "")

    events = kubectl.find(["events"], "--namespace", target.namespace, "--field-selector", "type=Warning")
    latest: dict[tuple[str, str], tuple[str, str]] = {}
    for event in sorted(events, key=when):
        about = event.get("involvedObject", {})
        kind, name = about.get("kind", ""), about.get("name", "")
        owner = ("Deployment", name.rpartition("-")[0]) if kind == "ReplicaSet" else (kind, name)
        if owner in target.workloads:
            line = f"{kind} {name}: {event.get('reason')}: {_short(event.get('message', ''))}"
            latest[owner] = line, when(event)
    return dict(latest.values())


def _behind(workload: Object) -> str:
    spec, status = workload["spec"], workload.get("status", {})
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        return "its controller has not seen the change yet"
    wanted = spec.get("replicas", 1)
    available = status.get("availableReplicas", 0)
    if workload["kind"] == "StatefulSet":
        rolled = status.get("updateRevision") == status.get("currentRevision")
        updated = wanted if rolled else status.get("updatedReplicas", 0)
    else:
        updated = status.get("updatedReplicas", 0)
        if available >= wanted and status.get("replicas", 0) > updated:
            return f"{status['replicas'] - updated} of its pods are still old"
    if updated < wanted:
        return f"{updated} of {wanted} pods are new"
    if available < wanted:
        return f"{available} of {wanted} pods are available"
    return ""


def _reason(pod: Object) -> str:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason')}: {_short(scheduled.get('message', ''))}"
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        state = container.get("state", {})
        held = state.get("waiting") or (state.get("terminated") if "terminated" in state else None)
        if held and held.get("reason") not in ("ContainerCreating", "PodInitializing", "Completed", None):
            message = f": {_short(held['message'])}" if held.get("message") else ""
            return f"container {container['name']}: {held['reason']}{message}"
    return ""


def is_ready(pod: Object) -> bool:
    """Whether a pod is ready."""
    return bool(_condition(pod, "Ready").get("status") == "True")


def _condition(pod: Object, kind: str) -> Object:
    found: Iterable[Object] = pod.get("status", {}).get("conditions", ())
    return next((condition for condition in found if condition["type"] == kind), {})


def _short(text: str) -> str:
    return escaped(shortened(text, _LONGEST))
