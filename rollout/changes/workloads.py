"""What a stack's objects run: workloads and how their pods are renewed, the models that they serve, the GPUs they take.

All of it is read from objects that may not be well-formed: another version, a hand or a cluster wrote them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_contracts import proxy_process
from tidegate_contracts.labels import POOL, ROLE, SERVER

from components.place import STAGING
from stacks.definition.kinds import KINDS
from stacks.devices import Device

from .compare import Identity, json_tree

Tree = Mapping[str, Any]
Pool = tuple[str, str]  # Server and pool.
_GRACE_SECONDS = 30  # What Kubernetes takes where a pod does not say it; likewise below.
_PROBE = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}
_VENDOR = "nvidia.com/"
_MIG = f"{_VENDOR}mig-"
_PROFILE = re.compile(r"\.profile == '([^']*)'")


@dataclass(frozen=True)
class Replacing:
    """How an update puts new pods in the place of old ones."""

    unavailable: int  # Old pods that may be gone before new ones are ready.
    surge: int = 0  # New pods that may be there beside the old ones.
    kept: int = 0  # Pods that an update leaves alone (a StatefulSet's partition).
    by_hand: bool = False  # Whether a pod is only renewed when somebody deletes it.
    waits_for_end: bool = True  # Whether a new pod starts only after the old one has ended.


def pool_of(item: Tree) -> Pool | None:
    """Return the pool that an object belongs to, by its labels."""
    labels = mapping(item, "metadata", "labels")
    server, pool = text(labels, SERVER), text(labels, POOL)
    return (server, pool) if server and pool else None


class Workload:
    """A Deployment or a StatefulSet; `least` and `most` are its pods: a fixed number, or an autoscaler's bounds."""

    def __init__(self, item: Tree, least: int, most: int) -> None:
        self.item, self.least, self.most = item, least, most
        self.identity = self.kind, self.namespace, self.name = _identity(item)
        self.template = mapping(item, "spec", "template")
        self.pod = mapping(self.template, "spec")
        self.containers = [*items(self.pod, "initContainers"), *items(self.pod, "containers")]
        self.pool = pool_of(item)
        role = text(self.template, "metadata", "labels", ROLE)
        self.role = "pool" if self.pool else "proxy" if role == "proxy" else self.kind.lower()
        self.stop_seconds = number(self.pod, "terminationGracePeriodSeconds", default=_GRACE_SECONDS)
        self.pods = f"{least} to {most} pods" if least != most else f"{most} pod{'' if most == 1 else 's'}"

    @property
    def start_seconds(self) -> int | None:
        """Longest time that a pod may take from its start to ready before it counts as stuck; None for no bound.

        Sidecars start one after the other, then all containers at the same time.
        """
        startups = [_probe_seconds(one, "startupProbe", "failureThreshold") for one in self.containers]
        looks = [_probe_seconds(one, "readinessProbe", "successThreshold") for one in items(self.pod, "containers")]
        sidecars = len(startups) - len(looks)
        if not looks or not all(startups):
            return None
        settled = number(self.item, "spec", "minReadySeconds", default=0)
        return sum(startups[:sidecars]) + max(startups[sidecars:]) + max(looks) + settled

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


def workloads(objects: Sequence[Tree]) -> dict[Identity, Workload]:
    """Return the Deployments and StatefulSets among objects, with their autoscalers' bounds."""
    found: dict[Identity, Tree] = {}
    bounds: dict[Identity, tuple[int, int]] = {}
    for item in objects:
        kind, namespace, _ = identity = _identity(item)
        spec, target = mapping(item, "spec"), mapping(item, "spec", "scaleTargetRef")
        scaled = text(target, "kind", default="Deployment"), namespace, text(target, "name")
        if kind in ("Deployment", "StatefulSet"):
            found[identity] = item
        elif kind == "HorizontalPodAutoscaler":
            least = number(spec, "minReplicas", default=1)
            bounds[scaled] = least, number(spec, "maxReplicas", default=least)
        elif kind == "ScaledObject":
            bounds[scaled] = number(spec, "minReplicaCount", default=0), number(spec, "maxReplicaCount", default=100)
    fixed = {identity: number(item, "spec", "replicas", default=1) for identity, item in found.items()}
    return {identity: Workload(item, *bounds.get(identity, (fixed[identity],) * 2)) for identity, item in found.items()}


def _identity(item: Tree) -> Identity:
    return text(item, "kind"), text(item, "metadata", "namespace"), text(item, "metadata", "name")


def _probe_seconds(container: Tree, name: str, times: str) -> int:
    """Return how long a probe looks until so many times are reached; 0 where there is none."""
    probe = mapping(container, name)
    delay, period = (number(probe, key, default=_PROBE[key]) for key in ("initialDelaySeconds", "periodSeconds"))
    return delay + period * number(probe, times, default=_PROBE.get(times, 1)) if probe else 0


def _share(value: Any, pods: int, default: int, *, up: bool) -> int:
    if isinstance(value, int):
        return max(0, value)
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
        return (pods * int(value[:-1]) + (99 if up else 0)) // 100
    return default


# ---- the models that are served, from the proxy's routing table ----


@dataclass(frozen=True)
class Serving:
    """What is served; nothing where there is no routing table that can be read."""

    models: dict[Pool, list[str]]
    loading: dict[Pool, str]  # `preload` or `on-demand`.
    called: dict[Pool, str]  # What callers call the server of a pool.
    traffic: dict[str, str]
    """Where the calls of each model go, in words."""
    bound: dict[Pool, str]  # Files of its models that load only with the release of the image that they were built for.
    fixed: dict[Pool, set[str]]
    """Models and versions that a replica serves as it started: it must start again to serve another version."""

    def places(self) -> dict[str, list[Pool]]:
        """Return where each model is served: in several pools where its versions have pools of their own."""
        found: dict[str, list[Pool]] = {}
        for pool, models in self.models.items():
            for model in models:
                found.setdefault(model, []).append(pool)
        return found


def serving(objects: Sequence[Tree]) -> Serving:
    """Return what a stack's objects serve, by the names of these: the table may call a server or pool otherwise."""
    found = Serving({}, {}, {}, {}, {}, {})
    services = {text(item, "metadata", "name"): pool_of(item) for item in objects if item.get("kind") == "Service"}
    there = {pool_of(item) for item in objects if item.get("kind") == "StatefulSet"}
    for item in objects:
        if item.get("kind") != "ConfigMap":
            continue
        table = json_tree(at(item, "data", proxy_process.ROUTING_FILE))
        made_as: dict[Pool, Pool] = {}
        fixed = set()
        found.traffic.update(_traffic(table))
        for server in items(table, "servers"):
            kind = KINDS.get(text(server, "kind"))
            fixed |= {text(server, "name")} if kind and not kind.loads_whole_repository else set()
            for pool in items(server, "pools"):
                called = text(server, "name"), text(pool, "name")
                behind = services.get(text(pool, "host").partition(".")[0])
                made_as[called] = behind if behind and behind in there else called  # else it is before several pools
                found.loading[made_as[called]] = text(pool, "loading")
                found.called[made_as[called]] = called[0]
                found.bound[made_as[called]] = kind.bound_to_image if kind else ""
        for model in sorted(items(table, "models"), key=lambda model: text(model, "name")):
            name = text(model, "name")
            called = text(model, "server"), text(model, "pool")
            place = made_as.get(called, called)
            found.models.setdefault(place, []).append(name)
            if called[0] in fixed:
                versions = [f"{name} version {share.get('version')}" for share in items(model, "versions")]
                found.fixed.setdefault(place, set()).update(versions or [name])
    return found


def _traffic(table: Any) -> dict[str, str]:
    """Return where the calls of each model go: to which versions, with which share."""
    models: dict[str, list[Tree]] = {}
    for model in items(table, "models"):
        models.setdefault(text(model, "name"), []).append(model)
    found = {}
    for name, entries in models.items():
        shares = [share for model in entries for share in items(model, "versions")]
        total = sum(number(share, "weight", default=0) for share in shares) or 1
        to = [
            f"{number(share, 'weight', default=0) * 100 // total} % to version {share.get('version')}"
            for share in shares
        ]
        to += [f"all to the version with the alias {alias}" for model in entries if (alias := text(model, "alias"))]
        to += [
            f"copies of {at(model, 'mirror', 'percent')} % to version {at(model, 'mirror', 'version')}"
            for model in entries
            if mapping(model, "mirror")
        ]
        found[name] = ", ".join(dict.fromkeys(to)) or "all to the newest version"
    return found


def staged(workload: Workload) -> str:
    """Return where a pool keeps files of models near its GPU, and how many bytes at the most; empty where nowhere."""
    for volume in items(workload.pod, "volumes"):
        if text(volume, "name") != STAGING:
            continue
        claim = mapping(volume, "ephemeral", "volumeClaimTemplate", "spec")
        if claim:
            size = text(claim, "resources", "requests", "storage")
            return f"on a volume of {text(claim, 'storageClassName')}, {size}"
        place = "in memory" if text(volume, "emptyDir", "medium") else "on the node's disk"
        return f"{place}, {text(volume, 'emptyDir', 'sizeLimit')}"
    return ""


# ---- GPU devices ----


def gpu_slices(objects: Sequence[Tree]) -> Counter[str]:
    """Count the GPU devices of each kind that all pods take together, with autoscalers at their most."""
    wanted: Counter[str] = Counter()
    for workload, device, count in _all_devices(objects):
        wanted[str(device)] += count * workload.most
    return +wanted


def mig_profiles(objects: Sequence[Tree]) -> dict[Identity, set[str]]:
    """Return the profiles of the slices that each workload's pods ask for."""
    found: dict[Identity, set[str]] = {}
    for workload, device, _ in _all_devices(objects):
        found.setdefault(workload.identity, set()).update([device.profile] if device.profile else [])
    return found


def _all_devices(objects: Sequence[Tree]) -> Iterator[tuple[Workload, Device, int]]:
    claims = {_identity(item): item for item in objects if item.get("kind") == "ResourceClaimTemplate"}
    for workload in workloads(objects).values():
        yield from ((workload, device, count) for device, count in _devices(workload, claims))


def _devices(workload: Workload, claims: Mapping[Identity, Tree]) -> Iterator[tuple[Device, int]]:
    for container in workload.containers:
        limits = {**mapping(container, "resources", "requests"), **mapping(container, "resources", "limits")}
        for resource, value in limits.items():
            amount = int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0
            if resource.startswith(_MIG):
                yield Device("mig", _profile(resource.removeprefix(_MIG)), "mixed"), amount
            elif resource in (f"{_VENDOR}gpu", f"{_VENDOR}gpu.shared"):
                yield _whole(mapping(workload.pod, "nodeSelector")), amount
    for claim in items(workload.pod, "resourceClaims"):
        name = text(claim, "resourceClaimTemplateName")
        template = claims.get(("ResourceClaimTemplate", workload.namespace, name))
        for request in items(template, "spec", "spec", "devices", "requests"):
            expressions = (text(one, "cel", "expression") for one in items(request, "exactly", "selectors"))
            profile = next((found[1] for each in expressions if (found := _PROFILE.search(each))), None)
            count = number(request, "exactly", "count", default=1)
            yield Device("dra", profile) if profile else Device("gpu"), count


def _profile(name: str) -> str:
    """Return a profile by its name in resources and labels, where a dot stands for the plus of 1g.10gb+me."""
    return name.replace("gb.", "gb+")


def _whole(selector: Tree) -> Device:
    """Return what one `nvidia.com/gpu` is on the nodes that are selected."""
    if selector.get(f"{_VENDOR}mig.strategy") == "single":
        return Device("mig", _profile(text(selector, f"{_VENDOR}gpu.product").partition("-MIG-")[2]), "single")
    sharing = text(selector, f"{_VENDOR}gpu.sharing-strategy")
    return Device(sharing if sharing in ("time-slicing", "mps") else "gpu")


# ---- reading what may not be well-formed ----


def at(tree: Any, *path: str) -> Any:
    """Return what stands at a path; None where there is nothing."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def mapping(tree: Any, *path: str) -> Tree:
    """Return the mapping at a path; an empty one where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: Any, *path: str) -> Iterator[Tree]:
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
