"""The network boundary, as peers that NetworkPolicies know."""

from typing import Any

from components import NetworkBoundaryArgs, ReachArgs

from ..definition.environment import Caller, Domino, Reach
from ..validate import Stack
from . import names

NAMESPACE_NAME = "kubernetes.io/metadata.name"
ISTIOD_PORTS = [15012, 15010]


def network_boundary(stack: Stack) -> NetworkBoundaryArgs:
    """Return who may call the proxy, what may be reached, and who reads metrics."""
    platform = stack.platform
    callers = [_peer(caller) for caller in platform.network.callers]
    if platform.domino is not None:
        callers.append(_namespace(platform.domino.compute_namespace))
    prometheus = platform.monitoring.prometheus
    return NetworkBoundaryArgs(
        namespace=stack.namespace,
        labels=names.labels(stack, "network"),
        proxy_selector=names.proxy_selector(stack),
        server_selector=names.server_selector(stack),
        on_demand_selector=names.on_demand_selector(stack),
        dns_namespace=platform.network.dns_namespace,
        callers=callers or None,
        prometheus={**_namespace(prometheus.namespace), **_pods(prometheus.pod_labels)},
        reach=[
            *(_reach(stack, reach) for reach in platform.network.reach),
            *(_domino_reach(stack, platform.domino) if platform.domino is not None else []),
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
        return {"ipBlock": {"cidr": peer.cidr}}
    return {"namespaceSelector": {"matchLabels": dict(peer.namespace_labels)}, **_pods(peer.pod_labels)}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}}


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": dict(labels)}} if labels else {}


def _ports(ports: Any) -> list[dict[str, Any]] | None:
    return [{"port": port, "protocol": "TCP"} for port in ports] or None
