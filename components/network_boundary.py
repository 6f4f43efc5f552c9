"""The network policies of an environment. They deny both directions by default, and allow the connections below."""

from collections.abc import Iterable, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, openai, proxy_process, triton
from tidegate_contracts.labels import ROLE, SERVER

from stacks.definition.environment import Caller, Domino, PrometheusPeer, Reach
from stacks.definition.environment import Mesh as MeshSettings
from stacks.definition.proxy import PROXY

from .args import NetworkBoundaryArgs
from .naming import Naming, Texts
from .values import each, either, equals, flat, if_true, joined, merged, none_if_empty, when

_EVERY_POD = k8s.meta.v1.LabelSelectorArgs()
_Port = k8s.networking.v1.NetworkPolicyPortArgs
_Ingress = k8s.networking.v1.NetworkPolicyIngressRuleArgs
_Egress = k8s.networking.v1.NetworkPolicyEgressRuleArgs
# GKE's documentation of network policies with Workload Identity: with kube-proxy, and with Dataplane V2.
_GKE_METADATA = (("169.254.169.252/32", 988), ("169.254.169.254/32", 80))

ISTIOD_PORTS = (15012, 15010)

Peer = Any  # A NetworkPolicyPeer, as manifests have it.


class NetworkBoundary(pulumi.ComponentResource):
    """NetworkPolicies: a default-deny policy, and one policy for each allowed kind of connection."""

    def __init__(
        self,
        name: str,
        args: NetworkBoundaryArgs,
        naming: Naming,
        callers: Sequence[Peer] = (),
        domino: Domino | None = None,
        mesh: MeshSettings | None = None,
        google: Sequence[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare the policies. `callers` are more callers, `google` are the servers with a Google service account."""
        super().__init__("tidegate:components:NetworkBoundary", name, None, opts)
        proxies = _pods(naming.proxy_selector)
        servers = _pods(naming.server_selector)
        on_demand = _pods(naming.on_demand_selector)
        inference = _ports((triton.HTTP_PORT, triton.GRPC_PORT, openai.HTTP_PORT))
        lease = [_port(eviction_process.LEASE_PORT)]
        prometheus = _pods_of(args.prometheus, namespace_peer(args.prometheus.namespace))
        labels = naming.labels("network")

        def policy(
            suffix: str, pods: Any, ingress: Sequence[Any] | None = None, egress: Sequence[Any] | None = None
        ) -> k8s.networking.v1.NetworkPolicy:
            types = [*(["Ingress"] if ingress is not None else []), *(["Egress"] if egress is not None else [])]
            return k8s.networking.v1.NetworkPolicy(
                f"{name}-{suffix}",
                metadata=naming.metadata(suffix, labels),
                spec=k8s.networking.v1.NetworkPolicySpecArgs(
                    pod_selector=pods, policy_types=types, ingress=ingress or None, egress=egress or None
                ),
                opts=pulumi.ResourceOptions(parent=self),
            )

        policy("default-deny", _EVERY_POD, ingress=[], egress=[])
        resolvers = joined([namespace_peer(args.dns.namespace)], each(args.dns.addresses, address_peer))
        both = flat(args.dns.ports, lambda port: [_Port(port=port, protocol="UDP"), _Port(port=port, protocol="TCP")])
        policy("dns", _EVERY_POD, egress=[_Egress(to=resolvers, ports=both)])
        called = [_port(proxy_process.HTTP_PORT), _port(proxy_process.GRPC_PORT)]
        when(
            none_if_empty(joined(each(args.callers, _peer), callers)),
            lambda peers: policy("callers-to-proxy", proxies, ingress=[_Ingress(from_=peers, ports=called)]),
        )
        policy("proxy-to-servers", proxies, egress=[_to(_own(servers), inference), _to(_own(on_demand), lease)])
        policy("servers-from-proxy", servers, ingress=[_from(_own(proxies), inference)])
        policy("policy-from-proxy", on_demand, ingress=[_from(_own(proxies), lease)])
        when(
            args.api_server,
            lambda server: policy(
                "policy-to-api-server",
                on_demand,
                egress=[_Egress(to=each(server.addresses, address_peer), ports=each(server.ports, _port))],
            ),
        )
        for suffix, pods, ports in (
            ("metrics-of-proxy", proxies, [proxy_process.ADMIN_PORT]),
            ("metrics-of-servers", servers, [triton.METRICS_PORT, openai.METRICS_PORT]),
            ("metrics-of-policy", on_demand, [eviction_process.ADMIN_PORT]),
        ):
            policy(suffix, pods, ingress=[_from(prometheus, _ports(ports))])
        each(
            args.reach,
            lambda reach: policy(
                f"reach-{reach.name}",
                _reaching(reach, naming),
                egress=[_Egress(to=[_reached(reach)], ports=each(reach.ports, _port))],
            ),
        )
        # GKE's metadata server issues the tokens of the pods' Google service account.
        when(
            google,
            lambda names: [
                policy(
                    f"gke-metadata-{port}", _servers(naming, names), egress=[_to(address_peer(address), [_port(port)])]
                )
                for address, port in _GKE_METADATA
            ],
        )
        # Domino's services (principal, keys), if they are in this cluster.
        when(
            domino,
            lambda found: either(
                found.principal_url,
                lambda _: None,
                lambda: policy("domino-platform", proxies, egress=[_to(namespace_peer(found.platform_namespace))]),
            ),
        )
        mesh_ports = [_port(port) for port in ISTIOD_PORTS]
        when(mesh, lambda found: policy("mesh", proxies, egress=[_to(namespace_peer(found.namespace), mesh_ports)]))
        self.register_outputs({})


class Mesh(pulumi.ComponentResource):
    """The PeerAuthentication of the proxy, for the mesh."""

    def __init__(
        self, name: str, args: MeshSettings, naming: Naming, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare it. Prometheus and the kubelet can connect to the admin port without a mesh certificate."""
        super().__init__("tidegate:components:Mesh", name, None, opts)
        spec: dict[str, Any] = {
            "selector": {"matchLabels": naming.proxy_selector},
            "mtls": {"mode": args.mtls},
            "portLevelMtls": {str(proxy_process.ADMIN_PORT): {"mode": "PERMISSIVE"}},
        }
        k8s.apiextensions.CustomResource(
            f"{name}-proxy",
            api_version="security.istio.io/v1",
            kind="PeerAuthentication",
            metadata=naming.metadata(PROXY, naming.labels(PROXY)),
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})


def namespace_peer(name: str) -> Peer:
    """Return all pods of a namespace as a NetworkPolicyPeer."""
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def address_peer(cidr: Any) -> Peer:
    """Return a range of addresses as a NetworkPolicyPeer."""
    return {"ipBlock": {"cidr": cidr}}


def _peer(peer: Caller | Reach) -> Peer:
    return either(
        peer.cidr, address_peer, lambda: _pods_of(peer, {"namespaceSelector": {"matchLabels": peer.namespace_labels}})
    )


def _reached(reach: Reach) -> Peer:
    return either(
        none_if_empty(reach.except_),
        lambda ranges: {"ipBlock": {"cidr": reach.cidr, "except": each(ranges, lambda cidr: cidr)}},
        lambda: _peer(reach),
    )


def _pods_of(peer: Caller | Reach | PrometheusPeer, namespaces: Peer) -> Any:
    labels = none_if_empty(peer.pod_labels)
    return merged(namespaces, when(labels, lambda labels: {"podSelector": {"matchLabels": labels}}))


def _reaching(reach: Reach, naming: Naming) -> k8s.meta.v1.LabelSelectorArgs:
    """Return the selector of the pods that may reach it: of one server, or by the role label of servers and proxies."""
    roles = each(reach.by, lambda pods: if_true(equals(pods, "servers"), lambda: "server", lambda: "proxy"))
    return either(reach.server, lambda name: _servers(naming, [name]), lambda: _labelled(naming, ROLE, roles or []))


def _servers(naming: Naming, names: Sequence[str]) -> k8s.meta.v1.LabelSelectorArgs:
    return _labelled(naming, SERVER, names)


def _labelled(naming: Naming, key: str, values: Sequence[str]) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(
        match_labels={"app.kubernetes.io/instance": naming.environment},
        match_expressions=[k8s.meta.v1.LabelSelectorRequirementArgs(key=key, operator="In", values=values)],
    )


def _pods(labels: Texts) -> k8s.meta.v1.LabelSelectorArgs:
    return k8s.meta.v1.LabelSelectorArgs(match_labels=labels)


def _own(selector: k8s.meta.v1.LabelSelectorArgs) -> k8s.networking.v1.NetworkPolicyPeerArgs:
    return k8s.networking.v1.NetworkPolicyPeerArgs(pod_selector=selector)


def _port(port: int) -> _Port:
    return _Port(port=port, protocol="TCP")


def _ports(numbers: Iterable[int]) -> list[_Port]:
    return [_port(number) for number in dict.fromkeys(numbers)]


def _to(peer: Peer, ports: list[_Port] | None = None) -> _Egress:
    return _Egress(to=[peer], ports=ports)


def _from(peer: Peer, ports: list[_Port]) -> _Ingress:
    return _Ingress(from_=[peer], ports=ports)
