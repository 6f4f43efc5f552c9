"""Who may talk to whom: nothing, but for what is named here. Both directions are closed by default."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input
from tidegate_contracts import eviction_process, proxy_process, triton

from .pods import metadata
from .values import Labels, each, when

_EVERY_POD = k8s.meta.v1.LabelSelectorArgs()
_Port = k8s.networking.v1.NetworkPolicyPortArgs


@dataclass(frozen=True, kw_only=True)
class ReachArgs:
    """Something outside the environment that some of its pods may reach."""

    name: str
    pod_selector: Input[Any]
    to: Input[Any]
    """A NetworkPolicyPeer."""
    ports: Input[Any] = None
    """NetworkPolicyPorts; every port when None."""


@dataclass(frozen=True, kw_only=True)
class NetworkBoundaryArgs:
    """The boundary of one environment."""

    namespace: Input[str]
    labels: Labels
    proxy_selector: Labels
    server_selector: Labels
    """All Tritons."""
    on_demand_selector: Labels
    """Those with an eviction policy."""
    dns: Sequence[Input[Any]]
    """The NetworkPolicyPeers that answer DNS."""
    dns_ports: Input[Any]
    """NetworkPolicyPorts that they listen on."""
    callers: Sequence[Input[Any]] | None = None
    """NetworkPolicyPeers that may call the proxy; None when nobody may."""
    prometheus: Input[Any]
    """The NetworkPolicyPeer that may read metrics."""
    reach: Sequence[ReachArgs] = ()


class NetworkBoundary(pulumi.ComponentResource):
    """NetworkPolicies: a refusal of everything, and one policy for each thing that is allowed."""

    def __init__(self, name: str, args: NetworkBoundaryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the boundary."""
        super().__init__("tidegate:components:NetworkBoundary", name, None, opts)
        proxies = _pods(args.proxy_selector)
        servers = _pods(args.server_selector)
        on_demand = _pods(args.on_demand_selector)
        inference = [_port(triton.HTTP_PORT), _port(triton.GRPC_PORT)]
        lease = [_port(eviction_process.LEASE_PORT)]

        def policy(suffix: str, **spec: Any) -> None:
            k8s.networking.v1.NetworkPolicy(
                f"{name}-{suffix}",
                metadata=metadata(suffix, args.namespace, args.labels),
                spec=k8s.networking.v1.NetworkPolicySpecArgs(**spec),
                opts=pulumi.ResourceOptions(parent=self),
            )

        policy("default-deny", pod_selector=_EVERY_POD, policy_types=["Ingress", "Egress"])
        policy(
            "dns",
            pod_selector=_EVERY_POD,
            policy_types=["Egress"],
            egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=args.dns, ports=args.dns_ports)],
        )
        when(
            args.callers,
            lambda callers: policy(
                "callers-to-proxy",
                pod_selector=proxies,
                policy_types=["Ingress"],
                ingress=[
                    k8s.networking.v1.NetworkPolicyIngressRuleArgs(
                        from_=each(callers, lambda caller: caller),
                        ports=[_port(proxy_process.HTTP_PORT), _port(proxy_process.GRPC_PORT)],
                    )
                ],
            ),
        )
        policy(
            "proxy-to-servers",
            pod_selector=proxies,
            policy_types=["Egress"],
            egress=[_to(_peer(servers), inference), _to(_peer(on_demand), lease)],
        )
        policy(
            "servers-from-proxy",
            pod_selector=servers,
            policy_types=["Ingress"],
            ingress=[_from(_peer(proxies), inference)],
        )
        policy(
            "policy-from-proxy",
            pod_selector=on_demand,
            policy_types=["Ingress"],
            ingress=[_from(_peer(proxies), lease)],
        )
        policy(
            "metrics-of-proxy",
            pod_selector=proxies,
            policy_types=["Ingress"],
            ingress=[_from(args.prometheus, [_port(proxy_process.ADMIN_PORT)])],
        )
        policy(
            "metrics-of-servers",
            pod_selector=servers,
            policy_types=["Ingress"],
            ingress=[_from(args.prometheus, [_port(triton.METRICS_PORT)])],
        )
        policy(
            "metrics-of-policy",
            pod_selector=on_demand,
            policy_types=["Ingress"],
            ingress=[_from(args.prometheus, [_port(eviction_process.ADMIN_PORT)])],
        )
        each(
            args.reach,
            lambda reach: k8s.networking.v1.NetworkPolicy(
                f"{name}-{reach.name}",
                metadata=metadata(reach.name, args.namespace, args.labels),
                spec=k8s.networking.v1.NetworkPolicySpecArgs(
                    pod_selector=reach.pod_selector,
                    policy_types=["Egress"],
                    egress=[k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=[reach.to], ports=reach.ports)],
                ),
                opts=pulumi.ResourceOptions(parent=self),
            ),
        )
        self.register_outputs({})


def _pods(labels: Labels) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(match_labels=labels)


def _peer(selector: k8s.meta.v1.LabelSelectorArgs) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=selector)


def _port(port: int) -> _Port:
    return _Port(port=port, protocol="TCP")


def _to(peer: Input[Any], ports: list[_Port]) -> k8s.networking.v1.NetworkPolicyEgressRuleArgs:
    return k8s.networking.v1.NetworkPolicyEgressRuleArgs(to=[peer], ports=ports)


def _from(peer: Input[Any], ports: list[_Port]) -> k8s.networking.v1.NetworkPolicyIngressRuleArgs:
    return k8s.networking.v1.NetworkPolicyIngressRuleArgs(from_=[peer], ports=ports)
