"""GPU devices that a stack's objects ask for, by kind, with autoscalers at their most."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from stacks.devices import Device

from .workloads import Workload, items, mapping, number, text, workloads

Tree = Mapping[str, Any]
_VENDOR = "nvidia.com/"
_MIG = f"{_VENDOR}mig-"
_WHOLE = (f"{_VENDOR}gpu", f"{_VENDOR}gpu.shared")
_PROFILE = re.compile(r"\.profile == '([^']*)'")


def gpu_slices(objects: Iterable[Tree]) -> Counter[str]:
    """Count the devices of each kind that all pods take together."""
    objects = list(objects)
    claims = {
        (text(item, "metadata", "namespace"), text(item, "metadata", "name")): item
        for item in objects
        if item.get("kind") == "ResourceClaimTemplate"
    }
    wanted: Counter[str] = Counter()
    for workload in workloads(objects).values():
        for kind, count in _devices(workload, claims).items():
            wanted[str(kind)] += count * workload.most
    return +wanted


def _devices(workload: Workload, claims: Mapping[tuple[str, str], Tree]) -> Counter[Device]:
    """Return the devices of one pod."""
    found: Counter[Device] = Counter()
    for container in (*items(workload.pod, "initContainers"), *items(workload.pod, "containers")):
        limits = {**mapping(container, "resources", "requests"), **mapping(container, "resources", "limits")}
        for resource, amount in limits.items():
            if resource.startswith(_MIG):
                found[Device("mig", resource.removeprefix(_MIG), "mixed")] += _amount(amount)
            elif resource in _WHOLE:
                found[_whole(workload.pod)] += _amount(amount)
    for claim in items(workload.pod, "resourceClaims"):
        template = claims.get((workload.identity[1], text(claim, "resourceClaimTemplateName")))
        for request in items(template, "spec", "spec", "devices", "requests"):
            found[_claimed(request)] += number(request, "exactly", "count", default=1)
    return found


def _whole(pod: Tree) -> Device:
    """Return what one `nvidia.com/gpu` is on the nodes that a pod runs on."""
    selector = mapping(pod, "nodeSelector")
    if selector.get(f"{_VENDOR}mig.strategy") == "single":
        return Device("mig", text(selector, f"{_VENDOR}gpu.product").partition("-MIG-")[2], "single")
    sharing = text(selector, f"{_VENDOR}gpu.sharing-strategy")
    return Device(sharing if sharing in ("time-slicing", "mps") else "gpu")


def _claimed(request: Tree) -> Device:
    expressions = (text(selector, "cel", "expression") for selector in items(request, "exactly", "selectors"))
    profile = next((found[1] for text in expressions if (found := _PROFILE.search(text))), None)
    return Device("dra", profile) if profile else Device("gpu")


def _amount(value: Any) -> int:
    return int(value) if isinstance(value, (int, str)) and str(value).isdecimal() else 0
