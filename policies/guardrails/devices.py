"""The GPU devices that pods take. No other module reads them from Kubernetes objects."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from .objects import Environment, Object, Pod, at, mapping, mappings, name_of, number, text
from .settings import Settings

GPU: Final = "nvidia.com/gpu"
SHARED: Final = f"{GPU}.shared"
MIG: Final = "nvidia.com/mig-"
PRODUCT: Final = f"{GPU}.product"
STRATEGY: Final = "nvidia.com/mig.strategy"
SHARING: Final = f"{GPU}.sharing-strategy"
_PROFILE = re.compile(r"\.profile == '([^']+)'")
_PRODUCT = re.compile(r"\.productName\.replace\(' ', '-'\) == '([^']+)'")


@dataclass(frozen=True)
class Device:
    """A kind of device that a node gives and a pod requests."""

    kind: str  # `mig`, `gpu`, `time-slicing`, `mps` or `dra`.
    profile: str | None = None
    strategy: str | None = None

    def __str__(self) -> str:
        """Words for people."""
        if self.kind == "mig":
            return f"MIG {self.profile} ({self.strategy})"
        names = {"gpu": "whole GPU", "time-slicing": "time-sliced GPU", "mps": "MPS share of a GPU"}
        return names.get(self.kind, f"device by DRA ({self.profile})")

    @property
    def price_key(self) -> str:
        """Its key in a table of prices: a profile as resources name it, or the kind."""
        return (self.profile or self.kind).replace("+", ".")


@dataclass(frozen=True)
class Requested:
    """Devices of one kind that each replica of a pod requests; any product without one."""

    device: Device
    product: str
    count: int


def limits(pod: Pod) -> dict[str, int]:
    """Return how many of which extended resource of a GPU one replica is limited to."""
    found: dict[str, int] = {}
    for one in pod.containers:
        for key, value in mapping(at(one, "resources", "limits")).items():
            if is_device(key):
                found[key] = found.get(key, 0) + (number(value) or 0)
    return found


def is_device(resource: object) -> bool:
    """Say whether an extended resource is a device of a GPU."""
    return str(resource) in (GPU, SHARED) or str(resource).startswith(MIG)


def requested(environment: Environment, pod: Pod) -> list[Requested]:
    """Return the devices that each replica requests, by limits and by claims."""
    return [*_limited(pod), *_claimed(environment, pod)]


def _limited(pod: Pod) -> Iterator[Requested]:
    selector = mapping(pod.spec.get("nodeSelector"))
    product, _, profile = text(selector.get(PRODUCT)).removesuffix("-SHARED").partition("-MIG-")
    for resource, count in limits(pod).items():
        device = Device(text(selector.get(SHARING)) or "gpu")
        if resource.startswith(MIG):
            device = Device("mig", _spelt(resource.removeprefix(MIG)), "mixed")
        elif profile or selector.get(STRATEGY) == "single":
            device = Device("mig", _spelt(profile), "single")
        yield Requested(device, product, count)


def _spelt(profile: str) -> str:
    """Return a profile by its name in resources and labels, where a dot stands for the plus of 1g.10gb+me."""
    return profile.replace("gb.", "gb+")


def _claimed(environment: Environment, pod: Pod) -> Iterator[Requested]:
    templates = {name_of(item): item for item in environment.of_kind("ResourceClaimTemplate")}
    for claim in mappings(pod.spec.get("resourceClaims")):
        template = templates.get(text(claim.get("resourceClaimTemplateName")))
        for request in mappings(at(template, "spec", "spec", "devices", "requests")):
            selectors = mappings(at(request, "exactly", "selectors"))
            words = " ".join(text(at(one, "cel", "expression")) for one in selectors)
            profile, product = _PROFILE.search(words), _PRODUCT.search(words)
            count = number(at(request, "exactly", "count"))
            device = Device("dra", profile[1]) if profile else Device("gpu")
            yield Requested(device, product[1] if product else "", 1 if count is None else count)


def most_replicas(environment: Environment, pod: Pod) -> int:
    """Return how many replicas of a pod there may be, an autoscaler's most counted."""
    for item in environment.autoscalers(pod):
        most = number(at(item, "spec", "maxReplicas") or at(item, "spec", "maxReplicaCount"))
        return 100 if most is None else most  # KEDA's own default
    return replicas(pod)


def replicas(pod: Pod) -> int:
    """Return how many replicas of a pod there are without an autoscaler; one by Kubernetes' own default."""
    said = number(at(pod.maker, "spec", "replicas"))
    return 1 if said is None else said


def device_counts(objects: Iterable[Object]) -> Counter[str]:
    """Count the devices of each kind that all workloads take together, with autoscalers at their most."""
    stack = Environment("", tuple(objects), Settings())
    found: Counter[str] = Counter()
    for pod in stack.workloads:
        for each in requested(stack, pod):
            found[str(each.device)] += each.count * most_replicas(stack, pod)
    return +found
