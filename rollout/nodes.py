"""Whether a cluster has nodes for pods: by their labels, taints and size, as if the nodes were empty."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from stacks.definition.base import MOST_NUMBER, quantity_value
from stacks.problems import listed

from .changes.workloads import Tree, Workload, at, items, mapping, text

VENDOR = "nvidia.com/"
_TERMS = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PASSES = "node.kubernetes.io/"  # How taints begin of what passes: a node is not ready, or is being emptied.
_GPU_NODES = "NVIDIA's GPU operator labels nodes, and its MIG manager cuts them; or change the placement."


@dataclass(frozen=True)
class Place:
    """For how many pods of a workload there is room; where that is too few, what is so, and what to do."""

    room: int
    what: str = ""
    command: tuple[str, ...] = ()  # Of kubectl, which shows it.
    do: str = ""


def place_of(workload: Workload, nodes: Sequence[Tree]) -> Place:
    """Return where a workload's pods could be; where they ask for no device, one node is enough for all of them."""
    pod, selector = workload.pod, mapping(workload.pod, "nodeSelector")
    labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [*items(pod, *_TERMS)]
    so = (f" labelled {labels}" if labels else "") + (" that nodeAffinity takes" if terms else "")
    show = ("describe", "nodes", *(("-l", labels) if labels else ()))
    wanted = _wanted(workload)
    devices = [name for name in wanted if "/" in name]
    if not workload.most:
        return Place(0)
    chosen = [node for node in nodes if _is_chosen(mapping(node, "metadata", "labels"), selector, terms)]
    if not chosen:
        what = f"there is no node{so}" if terms else f"no node is{so}"
        do = "Label nodes so, or change nodeSelector" + (" or affinity." if terms else ".")
        of_gpus = devices or any(key.startswith(VENDOR) for key in selector)
        return Place(0, what, ("get", "nodes", "--show-labels"), _GPU_NODES if of_gpus else do)
    open_to = [node for node in chosen if not _refusing(node, pod)]
    if not open_to:
        taints = sorted({taint for node in chosen for taint in _refusing(node, pod)})
        what = f"nodes{so} have the taint {listed(taints)}, which tolerations do not name"
        return Place(0, what, show, "Name it under tolerations, or take it off the nodes.")
    sizes = [mapping(node, "status", "allocatable") for node in open_to]
    scarce = [name for name in wanted if all(_holds(size, name, wanted) < 1 for size in sizes)]
    if scarce and not {*scarce} & {*devices}:
        asked = listed(f"{' + '.join(wanted[name])} of {name}" for name in scarce)
        return Place(0, f"no node{so} has {asked} for a pod", show, "Ask for less (resources), or add larger nodes.")
    fitting = [size for size in sizes if all(_holds(size, name, wanted) for name in wanted)]
    room = sum(min((_holds(size, name, wanted) for name in devices or wanted), default=1) for size in fitting)
    if room >= (workload.most if devices else 1):
        return Place(room)
    names = listed(devices if room or scarce else wanted)
    return Place(room, f"nodes{so} have {names} for {room} of {workload.pods}", show, _GPU_NODES)


def _wanted(workload: Workload) -> dict[str, list[str]]:
    """Return what a pod asks for, by resource, of each container; those that begin before others are sidecars."""
    found: dict[str, list[str]] = defaultdict(list)
    for container in workload.containers:
        resources = mapping(container, "resources")
        for name, amount in {**mapping(resources, "limits"), **mapping(resources, "requests")}.items():
            found[name].append(str(amount))
    return found


def _holds(size: Tree, name: str, wanted: Mapping[str, Sequence[str]]) -> int:
    """Return for how many pods a node that is empty has enough of a resource."""
    asked = sum(map(_amount, wanted[name]))
    return int(_amount(str(size.get(name, 0))) // asked) if asked else 1


def _amount(quantity: str) -> Decimal:
    try:
        return quantity_value(quantity)
    except ValueError:  # a form that is not ours, such as 1e3: nothing follows from it
        return Decimal(MOST_NUMBER)


def _is_chosen(labels: Tree, selector: Tree, terms: Sequence[Tree]) -> bool:
    """Say whether a node has the labels of nodeSelector, and fulfils one of the terms of nodeAffinity."""
    fulfilled = (all(_fulfils(labels, one) for one in items(term, "matchExpressions")) for term in terms)
    return selector.items() <= labels.items() and (not terms or any(fulfilled))


def _fulfils(labels: Tree, requirement: Tree) -> bool:
    """Say whether labels fulfil a requirement, as Kubernetes has it: what there is not, is in no list."""
    key, operator, values = text(requirement, "key"), text(requirement, "operator"), at(requirement, "values") or []
    said = labels.get(key)
    match operator:
        case "In":
            return said in values
        case "Exists":
            return key in labels
        case "Gt" | "Lt":
            sign = 1 if operator == "Gt" else -1
            return str(said).isdecimal() and sign * int(str(said)) > sign * int(values[0])
        case _:  # NotIn, DoesNotExist
            return said not in values if values else key not in labels


def _refusing(node: Tree, pod: Tree) -> list[str]:
    """Return the taints of a node, as kubectl writes them, that keep a pod away for good."""
    return [
        f"{text(taint, 'key')}={text(taint, 'value')}:{text(taint, 'effect')}".replace("=:", ":")
        for taint in items(node, "spec", "taints")
        if text(taint, "effect") in ("NoSchedule", "NoExecute")
        and not text(taint, "key").startswith(_PASSES)
        and not any(_tolerates(each, taint) for each in items(pod, "tolerations"))
    ]


def _tolerates(toleration: Tree, taint: Tree) -> bool:
    same = all(text(toleration, key) in ("", text(taint, key)) for key in ("key", "effect"))
    return same and (text(toleration, "operator") == "Exists" or text(toleration, "value") == text(taint, "value"))
