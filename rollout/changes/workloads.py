"""The workloads of a stack's objects, which may be malformed or of another version, and the models that they serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_contracts import proxy_process
from tidegate_contracts.labels import POOL, ROLE, SERVER

from policies.guardrails.objects import at, mapping, mappings, text
from stacks.definition.kinds import KINDS

from .compare import Identity, json_tree

Tree = Mapping[str, Any]
Pool = tuple[str, str]  # Server and pool.
_GRACE_SECONDS = 30  # A default of Kubernetes. So are those of _PROBE.
_PROBE = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}


def pool_of(item: Tree) -> Pool | None:
    """Return the pool of an object, by its labels."""
    labels = mapping(item, "metadata", "labels")
    server, pool = text(labels, SERVER), text(labels, POOL)
    return (server, pool) if server and pool else None


class Workload:
    """A Deployment or a StatefulSet. `least` and `most` are its pods: a fixed number, or an autoscaler's bounds."""

    def __init__(self, item: Tree, least: int, most: int) -> None:
        self.item, self.least, self.most = item, least, most
        self.identity = self.kind, self.namespace, self.name = _identity(item)
        self.template = mapping(item, "spec", "template")
        self.pod = mapping(self.template, "spec")
        self.containers = [*mappings(self.pod, "initContainers"), *mappings(self.pod, "containers")]
        self.pool = pool_of(item)
        role = text(self.template, "metadata", "labels", ROLE)
        self.role = "pool" if self.pool else "proxy" if role == "proxy" else self.kind.lower()
        self.stop_seconds = number(self.pod, "terminationGracePeriodSeconds", default=_GRACE_SECONDS)
        self.pods = f"{least} to {most} pods" if least != most else f"{most} pod{'' if most == 1 else 's'}"

    @property
    def start_seconds(self) -> int:
        """Maximum time to become available: all startup probes, one after the other, and minReadySeconds."""
        settled = number(self.item, "spec", "minReadySeconds", default=0)
        return sum(_startup_seconds(one) for one in self.containers) + settled


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


def _startup_seconds(container: Tree) -> int:
    probe = mapping(container, "startupProbe")
    delay, period, times = (number(probe, key, default=default) for key, default in _PROBE.items())
    return delay + period * times if probe else 0


@dataclass(frozen=True)
class Serving:
    """The served models. Empty if there is no readable routing table."""

    models: dict[Pool, list[str]]
    loading: dict[Pool, str]  # `preload` or `on-demand`.
    called: dict[Pool, str]  # The name of a pool's server for callers.
    bound: dict[Pool, str]  # Files of its models that load only with the image release that they were built for.
    traffic: dict[str, str]  # The versions that calls of each model reach, in words.
    started_with: dict[Pool, set[str]]  # Models and versions that a replica serves only if it started with them.

    def places(self) -> dict[str, list[Pool]]:
        """Return the pools of each model. Versions of a model can have separate pools."""
        found: dict[str, list[Pool]] = {}
        for pool, models in self.models.items():
            for model in models:
                found.setdefault(model, []).append(pool)
        return found


def serving(objects: Sequence[Tree]) -> Serving:
    """Return what a stack's objects serve, by the objects' names. The table may name a server or pool differently."""
    found = Serving({}, {}, {}, {}, {}, {})
    services = {text(item, "metadata", "name"): pool_of(item) for item in objects if item.get("kind") == "Service"}
    there = {pool_of(item) for item in objects if item.get("kind") == "StatefulSet"}
    for item in objects:
        if item.get("kind") != "ConfigMap":
            continue
        table = json_tree(at(item, "data", proxy_process.ROUTING_FILE))
        made_as: dict[Pool, Pool] = {}
        engines = set()
        found.traffic.update(_traffic(table))
        for server in mappings(table, "servers"):
            kind = KINDS.get(text(server, "kind"))
            engines |= {text(server, "name")} if kind and not kind.loads_whole_repository else set()
            for pool in mappings(server, "pools"):
                called = text(server, "name"), text(pool, "name")
                behind = services.get(text(pool, "host").partition(".")[0])
                made_as[called] = behind if behind and behind in there else called  # else it serves several pools
                found.loading[made_as[called]] = text(pool, "loading")
                found.called[made_as[called]] = called[0]
                found.bound[made_as[called]] = kind.bound_to_image if kind else ""
        for model in sorted(mappings(table, "models"), key=lambda model: text(model, "name")):
            called, name = (text(model, "server"), text(model, "pool")), text(model, "name")
            server_pool = made_as.get(called, called)
            found.models.setdefault(server_pool, []).append(name)
            if called[0] in engines:
                versions = [f"{name} version {share.get('version')}" for share in mappings(model, "versions")]
                found.started_with.setdefault(server_pool, set()).update(versions or [name])
    return found


def _traffic(table: Any) -> dict[str, str]:
    """Return the versions that calls of each model reach, with their shares."""
    models: dict[str, list[Tree]] = {}
    for model in mappings(table, "models"):
        models.setdefault(text(model, "name"), []).append(model)
    found = {}
    for name, entries in models.items():
        shares = [share for each in entries for share in mappings(each, "versions")]
        to = [f"{share.get('weight')} % to version {share.get('version')}" for share in shares]
        to += [f"all to the version with the alias {alias}" for each in entries if (alias := text(each, "alias"))]
        found[name] = ", ".join(dict.fromkeys(to)) or "all to the newest version"
    return found


def number(tree: Any, *path: str, default: int) -> int:
    """Return the integer at a path, or the default if it is negative or missing."""
    found = at(tree, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else default
