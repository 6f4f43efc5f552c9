"""Which pods a change lets reach, or be reached by, whom they could not: what NetworkPolicies allow together."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import NamedTuple

from policies.guardrails.objects import matches

from .workloads import Tree, at, items, mapping, text, workloads

_EVERY_PORT = "every port"
_EVERY_POD = "every pod"


class _Way(NamedTuple):
    """What one rule of a NetworkPolicy allows."""

    policy: str
    pods: frozenset[str]  # Whose pods they are; every pod of the namespace is one more name among them.
    direction: str
    peer: Tree  # As the policy has it; empty for anybody.
    port: str

    @property
    def words(self) -> str:
        """A sentence after `lets`."""
        ours = f"the pods of NetworkPolicy {self.policy}"
        one, other = (_peer(self.peer), ours) if self.direction == "ingress" else (ours, _peer(self.peer))
        return f"{one} reach {other} at {self.port}"

    def covers(self, other: "_Way") -> bool:
        """Say whether it allows its own pods all that another one does."""
        ports = (other.port, _EVERY_PORT)
        return self.direction == other.direction and self.port in ports and _covers(self.peer, other.peer)


def newly_reached(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[str]:
    """Yield who may newly reach whom, after `lets`.

    Addresses within those that were allowed are not new, nor is what pods do that are new themselves.
    """
    old, there = [*_ways(before)], {_EVERY_POD, *_labels_of_pods(before)}
    for way in _ways(after):
        known = [had.pods for had in old if had.covers(way)]
        if any(pod in there and not any({pod, _EVERY_POD} & pods for pods in known) for pod in way.pods):
            yield way.words


def no_longer_refused(before: Sequence[Tree], after: Sequence[Tree]) -> Iterator[str]:
    """Yield which pods may newly do more than NetworkPolicies name, after `no longer`."""
    held, there = _held(after), {_EVERY_POD, *_labels_of_pods(after)}
    for pod, direction in sorted(_held(before)):
        if pod in there and not {(pod, direction), (_EVERY_POD, direction)} & held:
            yield f"refuses {pod} the {direction} that no NetworkPolicy names"


def _ways(objects: Sequence[Tree]) -> Iterator[_Way]:
    for policy, pods in _policies(objects):
        for direction, of in (("ingress", "from"), ("egress", "to")):
            for rule in items(policy, "spec", direction):
                ports = [
                    f"{port.get('protocol', 'TCP')} {port.get('port', _EVERY_PORT)}" for port in items(rule, "ports")
                ]
                name = text(policy, "metadata", "name")
                for peer in [*items(rule, of)] or [{}]:
                    yield from (_Way(name, pods, direction, peer, port) for port in ports or [_EVERY_PORT])


def _held(objects: Sequence[Tree]) -> set[tuple[str, str]]:
    """Return the pods that may do only what NetworkPolicies name, in each direction."""
    return {
        (pod, str(direction).lower())
        for policy, pods in _policies(objects)
        for direction in at(policy, "spec", "policyTypes") or ("Ingress",)
        for pod in pods
    }


def _policies(objects: Sequence[Tree]) -> Iterator[tuple[Tree, frozenset[str]]]:
    known = _labels_of_pods(objects)
    for policy in objects:
        if policy.get("kind") == "NetworkPolicy":
            selector = mapping(policy, "spec", "podSelector")
            pods = {name for name, labels in known.items() if matches(selector, labels)}
            yield policy, frozenset(pods if any(selector.values()) else {_EVERY_POD, *pods})


def _labels_of_pods(objects: Sequence[Tree]) -> dict[str, Mapping[str, object]]:
    return {
        f"the pods of {kind} {name}": mapping(one.template, "metadata", "labels")
        for (kind, _, name), one in workloads(objects).items()
    }


def _peer(peer: Tree) -> str:
    if cidr := text(peer, "ipBlock", "cidr"):
        without = at(peer, "ipBlock", "except")
        return f"{cidr} except {', '.join(map(str, without))}" if without else cidr
    pods, spaces = (_labels(mapping(peer, key)) for key in ("podSelector", "namespaceSelector"))
    where = f" in namespaces {spaces}" if "namespaceSelector" in peer else ""
    return f"pods {pods}{where}" if peer else "anybody"


def _labels(selector: Tree) -> str:
    said = [f"{key}={value}" for key, value in sorted(mapping(selector, "matchLabels").items())]
    said += [
        f"{text(one, 'key')} {text(one, 'operator')} {', '.join(map(str, one.get('values') or ()))}".rstrip()
        for one in items(selector, "matchExpressions")
    ]
    return ", ".join(said) or "of any label"


def _covers(wide: Tree, narrow: Tree) -> bool:
    """Say whether a peer means all that another one means."""
    if wide == narrow or not wide:
        return True
    if "ipBlock" in wide or "ipBlock" in narrow:
        return _holds(mapping(wide, "ipBlock"), mapping(narrow, "ipBlock"))
    return ("namespaceSelector" in wide) == ("namespaceSelector" in narrow) and all(
        mapping(wide, key, "matchLabels").items() <= mapping(narrow, key, "matchLabels").items()
        and all(one in [*items(narrow, key, "matchExpressions")] for one in items(wide, key, "matchExpressions"))
        for key in ("namespaceSelector", "podSelector")
    )


def _holds(wide: Tree, narrow: Tree) -> bool:
    """Say whether a range, less what it leaves out, lies in another one, less what that one leaves out."""
    try:
        (outer, *closed), (inner, *left_out) = (
            [ip_network(cidr, strict=False) for cidr in (block["cidr"], *(block.get("except") or ()))]
            for block in (wide, narrow)
        )
        return inner.subnet_of(outer) and all(  # type: ignore[arg-type]
            not each.overlaps(inner) or any(each.subnet_of(other) for other in left_out)  # type: ignore[arg-type]
            for each in closed
        )
    except (KeyError, TypeError, ValueError):  # no ranges, or of two versions
        return False
