"""Network: pods connect only to named destinations, and accept only named callers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Any

from tidegate_contracts import proxy_process

from ..objects import Environment, Pod, at, items, mapping, mappings, name_of, number, text
from ..rule import Breach, guardrail

Rules = Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]

WIDEST = {4: 8, 6: 16}
"""The shortest prefix length, by IP version, of a range that names someone: no organisation's network is wider."""
_MANY_PORTS = 1000  # A range of this many ports counts as all ports.
METADATA = ("169.254.169.254", "169.254.169.252", "169.254.170.2", "fd00:ec2::254")
"""Addresses at which clouds hand out credentials of nodes: EC2, Azure and Google, GKE, ECS.

The agent of EKS Pod Identity (169.254.170.23, fd00:ec2::23) is not among them, because it gives a pod only the role of
the pod's service account.
"""
_METADATA_PORTS = (80, 988)
_LINK_LOCAL = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::/32"))
_GOOGLE = "iam.gke.io/gcp-service-account"
_EVERY_NAMESPACE = "kubernetes.io/metadata.name"  # Every namespace has this label.
_ALL, _INTERNET = "every address", "the whole internet"
_CALLED = (proxy_process.HTTP_PORT, proxy_process.GRPC_PORT)


@guardrail(
    "The namespace has a default-deny NetworkPolicy for ingress and egress",
    "Add a NetworkPolicy with podSelector: {}, policyTypes: [Ingress, Egress], and no rules.",
    shared="mandatory",
    local="advisory",
)
def everything_is_refused_by_default(environment: Environment) -> Iterator[Breach]:
    """A pod that no policy selects accepts all traffic, and can connect to everything. Other kinds of network policies
    can admit traffic that NetworkPolicies deny."""
    policies = environment.of_kind("NetworkPolicy")
    if not any(_denies_all(mapping(policy.get("spec"))) for policy in policies):
        yield Breach(environment.itself, "the namespace has no default-deny NetworkPolicy for ingress and egress")
    for item in environment.objects:
        kind = text(item.get("kind"))
        if kind.endswith("NetworkPolicy") and kind != "NetworkPolicy":
            yield Breach(item, f"a {kind} can admit traffic that NetworkPolicies deny")


@guardrail(
    "No NetworkPolicy admits all namespaces or the whole internet, or admits callers of the proxy to its metrics",
    "Name namespaces, pods or ranges, and their ports, in network.callers. For a load balancer, set sourceRanges. "
    "For a public service, add a waiver.",
    shared="advisory",
    local="advisory",
)
def callers_are_named(environment: Environment) -> Iterator[Breach]:
    """From every admitted address, an attacker can use a stolen token, try keys, and overload the proxy."""
    for policy, rule in _rules(environment, "ingress"):
        pods = _selects(policy)
        proxies = any(pod.is_proxy for pod in environment.selected(at(policy, "spec", "podSelector")))
        for peers in _all_of(mappings(rule.get("from"))):
            yield Breach(policy, f"it lets {peers} connect to {'the proxy' if proxies else pods}")
        if proxies and _opens(rule, proxy_process.ADMIN_PORT, "admin") and any(_opens(rule, port) for port in _CALLED):
            yield Breach(policy, f"it lets callers of the proxy also connect to port {proxy_process.ADMIN_PORT}")


@guardrail(
    "No NetworkPolicy lets pods connect to all namespaces, every address, or the metadata address of a cloud",
    "Name each destination and its ports in network.reach.",
    shared="advisory",
    local="advisory",
)
def destinations_are_named(environment: Environment) -> Iterator[Breach]:
    """Models are code: they could send data anywhere, or get the node's credentials from the metadata address.

    A rule may allow all addresses on named ports. It may allow the metadata address for servers, if one of them has a
    Google service account.
    """
    for policy, rule in _rules(environment, "egress"):
        pods = _selects(policy)
        peers = mappings(rule.get("to"))
        for where in _all_of(peers, elsewhere=True):
            if not where.startswith(_INTERNET) or _opens_all(rule):
                yield Breach(policy, f"it lets {pods} connect to {where}")
        for peer in peers:
            address = _metadata(mapping(peer.get("ipBlock")), rule)
            everywhere = _opens_all(rule) and is_wide(text(at(peer, "ipBlock", "cidr")))
            if address and not everywhere and not _needs_google(environment, policy):
                yield Breach(policy, f"it lets {pods} connect to the metadata address {address}")


def _rules(environment: Environment, direction: str) -> Rules:
    for policy in environment.of_kind("NetworkPolicy"):
        for rule in items(at(policy, "spec", direction)):
            yield policy, mapping(rule)


def _selects(policy: Mapping[str, Any]) -> str:
    selector = mapping(at(policy, "spec", "podSelector"))
    return "the pods that it selects" if _is_specific(selector) else "every pod"


def _denies_all(spec: Mapping[str, Any]) -> bool:
    selector = spec.get("podSelector")
    every = isinstance(selector, Mapping) and not any(selector.values())
    both = {"Ingress", "Egress"} <= {text(each) for each in items(spec.get("policyTypes"))}
    return every and both and not spec.get("ingress") and not spec.get("egress")


def _is_specific(selector: Any) -> bool:
    """Return whether a selector requires a label that not every namespace or pod has."""
    if mapping(mapping(selector).get("matchLabels")):
        return True
    return any(
        one.get("operator") == "In" or (one.get("operator") == "Exists" and one.get("key") != _EVERY_NAMESPACE)
        for one in mappings(mapping(selector).get("matchExpressions"))
    )


def _collapsed(cidrs: Iterable[str]) -> list[str]:
    """Return ranges with adjacent ones merged, so that the internet in pieces counts as the internet."""
    blocks: list[Any] = [block for cidr in cidrs if (block := _block(cidr))]
    same = ([block for block in blocks if block.version == version] for version in WIDEST)
    return [str(each) for networks in same for each in collapse_addresses(networks)]


def _all_of(peers: Sequence[Mapping[str, Any]], *, elsewhere: bool = False) -> Iterator[str]:
    """Yield each group of peers that is not specific. With `elsewhere`, named pods may be in any namespace."""
    if not peers:
        yield _ALL
    for cidr in _collapsed(text(at(peer, "ipBlock", "cidr")) for peer in peers if "ipBlock" in peer):
        if is_wide(cidr):
            yield f"{_INTERNET} ({cidr})"
    for peer in peers:
        if "ipBlock" in peer:
            continue
        if "namespaceSelector" in peer and not _is_specific(peer["namespaceSelector"]):
            if not (elsewhere and _is_specific(peer.get("podSelector"))):
                yield "the pods of all namespaces"
        elif not {"namespaceSelector", "podSelector"} & peer.keys():
            yield "an empty peer"


def is_wide(cidr: str) -> bool:
    """Return whether a range of addresses is wider than the network of any one organisation."""
    block = _block(cidr)
    return block is not None and block.prefixlen < WIDEST[block.version]


def _block(cidr: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(cidr, strict=False)
    except ValueError:
        return None


def _opens(rule: Mapping[str, Any], port: int, name: str = "") -> bool:
    """Return whether a rule opens a TCP port, by its number, its name or a range. A rule without ports opens all."""
    ports = mappings(rule.get("ports"))
    for one in ports:
        first, last = number(one.get("port")), number(one.get("endPort"))
        if one.get("protocol") not in (None, "TCP"):
            continue
        if one.get("port") is None or (name and one["port"] == name):
            return True
        if first is not None and first <= port <= (first if last is None else last):
            return True
    return not ports


def _opens_all(rule: Mapping[str, Any]) -> bool:
    ports = mappings(rule.get("ports"))
    return not ports or any(
        one.get("port") is None or (number(one.get("endPort")) or 0) - (number(one["port"]) or 0) >= _MANY_PORTS
        for one in ports
    )


def _metadata(block: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    """Return the metadata address that a rule opens, or an empty text. A range that is not link-local must also open
    one of the ports of the metadata services."""
    cidr = _block(text(block.get("cidr")))
    without = [each for each in map(_block, map(text, items(block.get("except")))) if each is not None]
    for address in map(ip_address, METADATA):
        if cidr is None or address not in cidr or any(address in each for each in without):
            continue
        is_local = any(cidr.version == near.version and cidr.subnet_of(near) for near in _LINK_LOCAL)  # type: ignore[arg-type]
        if is_local or any(_opens(rule, port) for port in _METADATA_PORTS):
            return str(address)
    return ""


def _needs_google(environment: Environment, policy: Mapping[str, Any]) -> bool:
    """Return whether a policy selects only servers, and one of them gets its tokens from GKE's metadata server."""
    known = {
        name_of(account)
        for account in environment.of_kind("ServiceAccount")
        if at(account, "metadata", "annotations", _GOOGLE)
    }
    selected: list[Pod] = environment.selected(at(policy, "spec", "podSelector"))
    return not any(pod.is_proxy for pod in selected) and any(
        text(pod.spec.get("serviceAccountName")) in known for pod in selected
    )
