"""The network boundary."""

from components import CallerArgs, DnsArgs, NetworkBoundaryArgs, PrometheusPeerArgs, ReachArgs

from ..definition.environment import Caller, Reach
from ..stack import Stack


def network_boundary(stack: Stack) -> NetworkBoundaryArgs:
    """Return who may call the proxy, what may be reached, and who reads metrics."""
    network = stack.platform.network
    prometheus = stack.platform.monitoring.prometheus
    return NetworkBoundaryArgs(
        callers=[_caller(caller) for caller in network.callers],
        reach=[_reach(reach) for reach in network.reach],
        dns=DnsArgs(
            namespace=network.dns.namespace, ports=list(network.dns.ports), addresses=list(network.dns.addresses)
        ),
        prometheus=PrometheusPeerArgs(namespace=prometheus.namespace, pod_labels=dict(prometheus.pod_labels)),
    )


def _caller(caller: Caller) -> CallerArgs:
    return CallerArgs(
        name=caller.name,
        namespace_labels=dict(caller.namespace_labels),
        pod_labels=dict(caller.pod_labels),
        cidr=caller.cidr,
    )


def _reach(reach: Reach) -> ReachArgs:
    return ReachArgs(
        name=reach.name,
        namespace_labels=dict(reach.namespace_labels),
        pod_labels=dict(reach.pod_labels),
        cidr=reach.cidr,
        by=sorted(set(reach.by)),
        ports=list(reach.ports),
    )
