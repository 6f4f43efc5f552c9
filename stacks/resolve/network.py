"""The network boundary, as peers that NetworkPolicies know."""

from typing import Any, Literal

from components import DnsArgs, NetworkBoundaryArgs, ReachArgs
from components.network_boundary import address_peer, namespace_peer

from ..definition.environment import Caller, Reach
from ..stack import Stack

# GKE's documentation of network policies with Workload Identity: with kube-proxy, and with Dataplane V2.
GKE_METADATA = (("169.254.169.252/32", 988), ("169.254.169.254/32", 80))


def network_boundary(stack: Stack) -> NetworkBoundaryArgs:
    """Return who may call the proxy, what may be reached, and who reads metrics."""
    network = stack.platform.network
    prometheus = stack.platform.monitoring.prometheus
    return NetworkBoundaryArgs(
        callers=[_peer(caller) for caller in network.callers],
        reach=[*map(_reach, network.reach), *_gcp_reach(stack)],
        dns=DnsArgs(
            namespace=network.dns.namespace, ports=list(network.dns.ports), addresses=list(network.dns.addresses)
        ),
        prometheus={**namespace_peer(prometheus.namespace), **_pods(prometheus.pod_labels)},
    )


def _reach(reach: Reach) -> ReachArgs:
    roles: dict[str, Literal["proxy", "server"]] = {"proxy": "proxy", "servers": "server"}
    by = sorted({roles[pods] for pods in reach.by})
    return ReachArgs(name=f"reach-{reach.name}", by=by, to=_peer(reach), ports=list(reach.ports))


def _gcp_reach(stack: Stack) -> list[ReachArgs]:
    """Return GKE's metadata server, from which pods get the tokens of their Google service account."""
    if not any(server.identity is not None and server.identity.cloud == "gcp" for server in stack.platform.servers):
        return []
    return [
        ReachArgs(name=f"gke-metadata-{port}", by=["server"], to=address_peer(address), ports=[port])
        for address, port in GKE_METADATA
    ]


def _peer(peer: Caller | Reach) -> Any:
    if peer.cidr is not None:
        return address_peer(peer.cidr)
    return {"namespaceSelector": {"matchLabels": dict(peer.namespace_labels)}, **_pods(peer.pod_labels)}


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}} if labels else {}
