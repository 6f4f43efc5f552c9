"""GPUs: what a pod asks for, where it may run, and how many there are of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ..devices import GPU, MIG, PRODUCT, SHARED, SHARING, STRATEGY, is_device, limits, most_replicas, requested
from ..objects import Environment, Pod, at, mapping, mappings, name_of, number, text
from ..rule import Breach, guardrail

_VISIBLE = "NVIDIA_VISIBLE_DEVICES"  # NVIDIA's container runtime follows it, whatever the scheduler gave.


@guardrail(
    "A pod on a GPU requests one kind of device, selects nodes that have it, and tolerates their taint",
    "Let them all follow from one placement, as the definition does.",
    shared="mandatory",
    local="mandatory",
)
def gpu_pods_have_limit_selector_and_toleration_that_agree(environment: Environment) -> Iterator[Breach]:
    """If they disagree, the pod stays Pending, or takes a device of another size than its models need."""
    templates = {name_of(item) for item in environment.of_kind("ResourceClaimTemplate")}
    for pod in environment.workloads:
        resources = limits(pod)
        claims = mappings(pod.spec.get("resourceClaims"))
        selector = mapping(pod.spec.get("nodeSelector"))
        what = [*_of_the_containers(pod), *_of_the_claims(pod, templates)]
        if len(resources) + bool(claims) > 1:
            kinds = ", ".join([*resources, *(["a device by claim"] if claims else [])])
            what.append(f"it asks for several kinds of devices: {kinds}")
        if resources or claims:
            if not any(_tolerates(one) for one in mappings(pod.spec.get("tolerations"))):
                what.append(f"it asks for a GPU and does not tolerate the taint {GPU}:NoSchedule of GPU nodes")
            what += [clash for device in resources for clash in _clashes(device, selector)]
        elif found := next((key for key in selector if str(key).startswith("nvidia.com/")), None):
            what.append(f"it selects GPU nodes, by {found}, and asks for no GPU")
        yield from (Breach(pod.maker, each) for each in what)


@guardrail(
    "All replicas together, at an autoscaler's maximum, take at most `guardrails.gpuSlices` devices",
    "Set fewer replicas, or agree on a higher guardrails.gpuSlices with your budget's owner.",
    shared="mandatory",
    local="mandatory",
)
def gpu_slices_stay_under_their_ceiling(environment: Environment) -> Iterator[Breach]:
    """GPUs are expensive.

    The ceiling holds for an environment on one data plane; a slice, a share and a whole GPU count alike.
    """
    ceiling = environment.settings.gpu_slices
    if ceiling is None:
        return
    taken = {
        name_of(pod.maker): most_replicas(environment, pod) * sum(one.count for one in requested(environment, pod))
        for pod in environment.workloads
    }
    if (total := sum(taken.values())) > ceiling:
        most = ", ".join(f"{name} {count}" for name, count in sorted(taken.items(), key=lambda each: -each[1]) if count)
        namespace = next(iter(environment.of_kind("Namespace")), {"kind": "Namespace"})
        yield Breach(namespace, f"it may take {total} GPU slices, and its ceiling is {ceiling}: {most}")


def _of_the_containers(pod: Pod) -> Iterator[str]:
    for one in pod.containers:
        if any(
            each.get("name") == _VISIBLE and each.get("value") not in ("", "void", "none")
            for each in mappings(one.get("env"))
        ):
            yield f"container {one.get('name')} takes devices that it did not ask for, by {_VISIBLE}"
        most, requests = (mapping(at(one, "resources", key)) for key in ("limits", "requests"))
        for key in sorted({str(key) for key in (*most, *requests) if is_device(key)}):
            if number(most.get(key)) is None:
                yield f"container {one.get('name')} requests {key} without a limit"
            elif key in requests and number(requests[key]) != number(most[key]):
                yield f"container {one.get('name')} requests another number of {key} than its limit"


def _of_the_claims(pod: Pod, templates: set[str]) -> Iterator[str]:
    claims = {text(claim.get("name")): claim for claim in mappings(pod.spec.get("resourceClaims"))}
    used = {text(claim.get("name")) for one in pod.containers for claim in mappings(at(one, "resources", "claims"))}
    for name in sorted(used - claims.keys()):
        yield f"a container uses the device claim {name}, which the pod does not have"
    for name in sorted(claims.keys() - used):
        yield f"no container uses the pod's device claim {name}"
    for claim in claims.values():
        template = claim.get("resourceClaimTemplateName")
        if template is not None and text(template) not in templates:
            yield f"its device claim names the template {template}, which is not there"


def _tolerates(toleration: Mapping[str, Any]) -> bool:
    exists = toleration.get("operator") == "Exists"
    # The taint's value differs between clusters: one that names a value tolerates the taint where it has that value.
    key_fits = toleration.get("key") == GPU or (exists and not toleration.get("key"))
    return key_fits and toleration.get("effect") in (None, "", "NoSchedule")


def _clashes(device: str, selector: Mapping[str, Any]) -> Iterator[str]:
    product, strategy, sharing = (text(selector.get(key)) for key in (PRODUCT, STRATEGY, SHARING))
    sliced = "-MIG-" in product
    if device.startswith(MIG):
        if strategy == "single" or sliced or sharing:
            yield f"it asks for {device} and selects nodes of strategy single, or nodes that share their GPUs"
    elif (strategy == "single") != sliced:
        yield f"it selects MIG strategy {strategy or 'none'}, and the product {product or 'any'} says otherwise"
    if device == SHARED and not sharing:
        yield f"it asks for {device} and does not select nodes that share their GPUs, by {SHARING}"
