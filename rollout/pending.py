"""Says in words why a pod waits, from what the scheduler says about it."""

import re
from typing import Any

_SHORT = re.compile(r"^(\d+) Insufficient (\S+)$")
_SELECTOR = re.compile(r"^(\d+) node\(s\) didn't match Pod's node affinity/selector$")
_TAINT = re.compile(r"^(\d+) node\(s\) had untolerated taint(?:\(s\)|s)?(?: \{(\S+?)(?:: .*)?\})?$")
_DEVICES = re.compile(r"^(\d+) (?:node\(s\) )?cannot allocate all claims$")
_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"


def why_pending(pod: dict[str, Any]) -> str:
    """Return why a pod has no node yet; nothing when it has one."""
    if pod["spec"].get("nodeName"):
        return ""
    conditions = pod.get("status", {}).get("conditions", ())
    said = next((item.get("message", "") for item in conditions if item["type"] == "PodScheduled"), "")
    return in_words(said, pod["spec"]) if said else "The scheduler has not looked at it yet."


def in_words(said: str, spec: dict[str, Any]) -> str:
    """Return what the scheduler says about a pod as sentences; what is not known here stays as it is."""
    if claim := _CLAIM.search(said):
        return f"Its claim {claim[1]} is not in its namespace."
    if _UNBOUND in said:
        return "A claim of it is not bound to a volume."
    _, colon, reasons = said.partition(" nodes are available: ")
    if not colon:
        return said
    # After the reasons comes what preemption would do: "1 …, 2 …. preemption: …", or "1 …. still not schedulable, …".
    reasons = reasons.partition(". ")[0].rstrip(".")
    short, others, rest, no_device = [], 0, [], False
    for reason in reasons.split(", "):
        if match := _SHORT.match(reason):
            short.append((match[2], int(match[1])))
        elif _DEVICES.match(reason):
            no_device = True
        elif match := _SELECTOR.match(reason) or _TAINT.match(reason):
            others += int(match[1])
        else:
            rest.append(reason)
    asked = asked_for(spec)
    sentences = []
    for what, count in short:
        number = f" ({asked[what]} asked for)" if what in asked else ""
        has = "have" if count > 1 else "has"
        sentences.append(f"No {what} is left for it{number}: {_nodes(count)} of the right kind {has} too few free.")
    if no_device:
        sentences.append("No device that fits its claim is left.")
    elif not short and others:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(spec.get("nodeSelector", {}).items()))
        sentences.append(f"No node is of the kind that it asks for{f' ({labels})' if labels else ''}.")
    elif others:
        sentences.append(f"{_nodes(others).capitalize()} of another kind {'do' if others > 1 else 'does'} not count.")
    return " ".join([*sentences, *(f"Also: {item}." for item in rest)])


def asked_for(spec: dict[str, Any]) -> dict[str, int]:
    """Return what a pod asks of NVIDIA's devices: resource → how many."""
    asked: dict[str, int] = {}
    for container in spec["containers"]:
        resources = container.get("resources", {})
        for name, count in {**resources.get("requests", {}), **resources.get("limits", {})}.items():
            if name.startswith("nvidia.com/"):
                asked[name] = asked.get(name, 0) + int(count)
    return asked


def _nodes(count: int) -> str:
    return f"{count} node" + ("s" if count > 1 else "")
