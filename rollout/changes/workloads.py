"""What runs pods: how many, how long one takes to stop and to start, and how new ones take the place of old ones."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tree = Mapping[str, Any]
_KINDS = ("Deployment", "StatefulSet")
_GRACE_SECONDS = 30
"""What Kubernetes takes where a pod does not say it; likewise below."""
_PROBE = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}


@dataclass(frozen=True)
class Replacing:
    """How an update puts new pods in the place of old ones."""

    unavailable: int
    """Old pods that may be gone before new ones are ready."""
    surge: int = 0
    """New pods that may be there beside the old ones."""
    kept: int = 0
    """Pods that an update leaves alone (a StatefulSet's partition)."""
    by_hand: bool = False
    """Whether a pod is only renewed when somebody deletes it."""
    waits_for_end: bool = True
    """Whether a new pod starts only after the old one has ended."""


@dataclass(frozen=True)
class Workload:
    """A Deployment or a StatefulSet."""

    item: Tree
    least: int
    """Pods: a fixed number, or an autoscaler's bounds."""
    most: int

    @property
    def kind(self) -> str:
        """Its kind."""
        return text(self.item, "kind")

    @property
    def name(self) -> str:
        """Its name."""
        return text(self.item, "metadata", "name")

    @property
    def identity(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, text(self.item, "metadata", "namespace"), self.name

    @property
    def template(self) -> Tree:
        """Template of its pods."""
        return mapping(self.item, "spec", "template")

    @property
    def pod(self) -> Tree:
        """What a pod of it consists of."""
        return mapping(self.template, "spec")

    @property
    def pool(self) -> tuple[str, str] | None:
        """Server and pool whose replicas these are; None for anything else."""
        labels = mapping(self.item, "metadata", "labels")
        server, pool = text(labels, "tidegate.dev/server"), text(labels, "tidegate.dev/pool")
        return (server, pool) if server and pool else None

    @property
    def role(self) -> str:
        """What it is to people: `pool`, `proxy`, or its kind."""
        role = text(self.template, "metadata", "labels", "tidegate.dev/role")
        return "pool" if self.pool else "proxy" if role == "proxy" else self.kind.lower()

    @property
    def pods(self) -> str:
        """How many, in words: `1 pod`, `3 to 12 pods`."""
        if self.least != self.most:
            return f"{self.least} to {self.most} pods"
        return f"{self.most} pod{'' if self.most == 1 else 's'}"

    @property
    def stop_seconds(self) -> int:
        """Longest time that a pod takes to end."""
        return number(self.pod, "terminationGracePeriodSeconds", default=_GRACE_SECONDS)

    @property
    def start_seconds(self) -> int | None:
        """Longest time that a pod may take from its start to ready before it counts as stuck; None for no bound.

        Sidecars start one after the other, then all containers at the same time.
        """
        sidecars = [_startup(container) for container in items(self.pod, "initContainers")]
        containers = [_startup(container) for container in items(self.pod, "containers")]
        known = [seconds for seconds in (*sidecars, *containers) if seconds is not None]
        if not containers or len(known) < len(sidecars) + len(containers):
            return None
        ready = max(_first_look(container) for container in items(self.pod, "containers"))
        settled = number(self.item, "spec", "minReadySeconds", default=0)
        return sum(known[: len(sidecars)]) + max(known[len(sidecars) :]) + ready + settled

    def replacing(self, pods: int) -> Replacing:
        """Return how an update of so many pods goes."""
        spec = mapping(self.item, "spec")
        if self.kind == "StatefulSet":
            update = mapping(spec, "updateStrategy", "rollingUpdate")
            return Replacing(
                unavailable=max(1, _share(update.get("maxUnavailable"), pods, 1, up=False)),
                kept=number(update, "partition", default=0),
                by_hand=text(spec, "updateStrategy", "type") == "OnDelete",
            )
        if text(spec, "strategy", "type") == "Recreate":
            return Replacing(unavailable=max(1, pods))
        update = mapping(spec, "strategy", "rollingUpdate")
        unavailable = _share(update.get("maxUnavailable", "25%"), pods, 0, up=False)
        surge = _share(update.get("maxSurge", "25%"), pods, 0, up=True)
        # Kubernetes takes away one when it could neither add nor take away any.
        return Replacing(unavailable=unavailable or int(not surge), surge=surge, waits_for_end=False)


def workloads(objects: Iterable[Tree]) -> dict[tuple[str, str, str], Workload]:
    """Return the Deployments and StatefulSets among objects, with their autoscalers' bounds."""
    objects = list(objects)
    bounds = _autoscalers(objects)
    found = {}
    for item in objects:
        if item.get("kind") in _KINDS:
            key = text(item, "kind"), text(item, "metadata", "namespace"), text(item, "metadata", "name")
            fixed = number(item, "spec", "replicas", default=1)
            least, most = bounds.get(key, (fixed, fixed))
            found[key] = Workload(item, least, most)
    return found


def _autoscalers(objects: Iterable[Tree]) -> dict[tuple[str, str, str], tuple[int, int]]:
    found = {}
    for item in objects:
        target = mapping(item, "spec", "scaleTargetRef")
        key = text(target, "kind", default="Deployment"), text(item, "metadata", "namespace"), text(target, "name")
        if item.get("kind") == "HorizontalPodAutoscaler":
            least = number(item, "spec", "minReplicas", default=1)
            found[key] = least, number(item, "spec", "maxReplicas", default=least)
        elif item.get("kind") == "ScaledObject":
            least = number(item, "spec", "minReplicaCount", default=0)
            found[key] = least, number(item, "spec", "maxReplicaCount", default=100)
    return found


def _startup(container: Tree) -> int | None:
    probe = mapping(container, "startupProbe")
    return _seconds(probe, "failureThreshold") if probe else None


def _first_look(container: Tree) -> int:
    """Return the seconds after its start-up until a container that is ready is known to be."""
    probe = mapping(container, "readinessProbe")
    return _seconds(probe, "successThreshold") if probe else 0


def _seconds(probe: Tree, times: str) -> int:
    delay, period = (number(probe, key, default=_PROBE[key]) for key in ("initialDelaySeconds", "periodSeconds"))
    return delay + period * number(probe, times, default=_PROBE.get(times, 1))


def _share(value: Any, pods: int, default: int, *, up: bool) -> int:
    """Return a number of pods that is said as a number or in per cent."""
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        return (pods * int(value[:-1]) + (99 if up else 0)) // 100
    return default


# ---- reading objects that may not be well-formed: another version, a hand or a cluster wrote them ----


def at(tree: Any, *path: str) -> Any:
    """Return what stands at a path; None where there is nothing."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def mapping(tree: Any, *path: str) -> Mapping[str, Any]:
    """Return the mapping at a path; an empty one where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in the list at a path."""
    found = at(tree, *path)
    yield from (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else ()


def number(tree: Any, *path: str, default: int) -> int:
    """Return the whole number at a path that is not negative, or the default."""
    found = at(tree, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default


def text(tree: Any, *path: str, default: str = "") -> str:
    """Return the text at a path, or the default."""
    found = at(tree, *path)
    return found if isinstance(found, str) else default
