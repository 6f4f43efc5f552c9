"""The network boundary, as peers that NetworkPolicies know."""

from typing import Any

from components import NetworkBoundaryArgs, ReachArgs

from ..definition.environment import Caller, Domino, Reach
from ..definition.proxy import Exposure, HttpRouteExposure, LoadBalancerExposure
from ..stack import Stack
from . import names

NAMESPACE_NAME = "kubernetes.io/metadata.name"
ISTIOD_PORTS = [15012, 15010]
EVERYBODY = ("0.0.0.0/0", "::/0")
# GKE's documentation of network policies with Workload Identity: with kube-proxy, and with Dataplane V2.
GKE_METADATA = (("169.254.169.252/32", 988), ("169.254.169.254/32", 80))


def network_boundary(stack: Stack) -> NetworkBoundaryArgs:
    """Return who may call the proxy, what may be reached, and who reads metrics."""
    platform = stack.platform
    dns = platform.network.dns
    callers = [*(_peer(caller) for caller in platform.network.callers), *_exposed_to(platform.proxy.exposure)]
    if platform.domino is not None:
        callers.append(_namespace(platform.domino.compute_namespace))
    prometheus = platform.monitoring.prometheus
    return NetworkBoundaryArgs(
        namespace=stack.namespace,
        labels=names.labels(stack, "network"),
        proxy_selector=names.proxy_selector(stack),
        server_selector=names.server_selector(stack),
        on_demand_selector=names.on_demand_selector(stack),
        dns=[_namespace(dns.namespace), *(_addresses(cidr) for cidr in dns.addresses)],
        dns_ports=[{"port": port, "protocol": protocol} for port in dns.ports for protocol in ("UDP", "TCP")],
        callers=callers or None,
        prometheus={**_namespace(prometheus.namespace), **_pods(prometheus.pod_labels)},
        reach=[
            *(_reach(stack, reach) for reach in platform.network.reach),
            *(_domino_reach(stack, platform.domino) if platform.domino is not None else []),
            *_gcp_reach(stack),
        ],
    )


def _reach(stack: Stack, reach: Reach) -> ReachArgs:
    """Return what may be reached; both kinds of pods carry the role label, so one selector serves either or both."""
    selector: dict[str, Any] = {
        "matchLabels": {"app.kubernetes.io/instance": stack.environment.name},
        "matchExpressions": [
            {"key": names.ROLE, "operator": "In", "values": [role.removesuffix("s") for role in sorted(set(reach.by))]}
        ],
    }
    return ReachArgs(name=f"reach-{reach.name}", pod_selector=selector, to=_peer(reach), ports=_ports(reach.ports))


def _exposed_to(exposure: Exposure) -> list[dict[str, Any]]:
    """Return callers that an exposure names by itself; an Ingress does not say where its controller runs."""
    match exposure:
        case HttpRouteExposure():
            return [_namespace(exposure.gateway_namespace)]
        case LoadBalancerExposure():
            return [_addresses(cidr) for cidr in exposure.source_ranges or EVERYBODY]
        case _:
            return []


def _gcp_reach(stack: Stack) -> list[ReachArgs]:
    """Return GKE's metadata server, from which pods get the tokens of their Google service account."""
    if not any(server.identity is not None and server.identity.cloud == "gcp" for server in stack.platform.servers):
        return []
    selector = {"matchLabels": names.server_selector(stack)}
    return [
        ReachArgs(name=f"gke-metadata-{port}", pod_selector=selector, to=_addresses(address), ports=_ports([port]))
        for address, port in GKE_METADATA
    ]


def _domino_reach(stack: Stack, domino: Domino) -> list[ReachArgs]:
    """Return what the proxy needs of Domino: its services (principal, keys), and the mesh's control plane."""
    selector = {"matchLabels": names.proxy_selector(stack)}
    reach = [ReachArgs(name="domino-platform", pod_selector=selector, to=_namespace(domino.platform_namespace))]
    if domino.mesh is not None:
        reach.append(
            ReachArgs(
                name="domino-mesh",
                pod_selector=selector,
                to=_namespace(domino.mesh.namespace),
                ports=_ports(ISTIOD_PORTS),
            )
        )
    return reach


def _peer(peer: Caller | Reach) -> dict[str, Any]:
    if peer.cidr is not None:
        return _addresses(peer.cidr)
    return {"namespaceSelector": {"matchLabels": dict(peer.namespace_labels)}, **_pods(peer.pod_labels)}


def _addresses(cidr: str) -> dict[str, Any]:
    return {"ipBlock": {"cidr": cidr}}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}}


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}} if labels else {}


def _ports(ports: Any) -> list[dict[str, Any]] | None:
    return [{"port": port, "protocol": "TCP"} for port in ports] or None
