"""Exposure: the proxy is the only entry point."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate_contracts import eviction_process, proxy_process, triton

from ..dynamo import admits_own_namespace
from ..objects import Environment, Pod, at, items, mapping, mappings, matches, name_of, namespace_of, text, texts
from ..rule import Breach, guardrail
from .network import is_wide

_ADMIN = (proxy_process.ADMIN_PORT, "admin")
_METRICS = (triton.METRICS_PORT, eviction_process.ADMIN_PORT)
"""Ports that are not for inference. The rules about the network check who can reach them."""
_NO_DOOR = {"Service", "ConfigMap", "Deployment", "StatefulSet", "DaemonSet", "NetworkPolicy", "ScaledObject"}
_DOORS = ("Ingress", "Route", "VirtualService", "IngressRoute", "Gateway")
"""Suffixes of the kinds that lead from outside to a Service: Ingress, HTTPRoute, GRPCRoute, OpenShift's Route, …"""


@guardrail(
    "No Service, Ingress or route exposes a server, and only the proxy can connect to servers",
    "Expose the proxy with proxy.exposure. Keep type ClusterIP for the Services of servers.",
    shared="mandatory",
    local="advisory",
)
def nothing_bypasses_the_proxy(environment: Environment) -> Iterator[Breach]:
    """Servers accept every request. Only the proxy authenticates, authorises and counts them.

    Dynamo is an exception: shared frontends can connect to the workers of their server, which respond to one port.
    """
    servers = {name_of(item): item for item in environment.of_kind("Service") if _servers(environment, item)}
    for service in servers.values():
        if (kind := at(service, "spec", "type") or "ClusterIP") != "ClusterIP":
            yield Breach(service, f"the Service selects servers and is of type {kind}")
        if at(service, "spec", "externalIPs"):
            yield Breach(service, "the Service selects servers and has externalIPs")
    for item in environment.objects:
        kind = text(item.get("kind"))
        if kind not in _NO_DOOR and kind.endswith(_DOORS):
            yield from _exposing(item, servers)
    yield from _network(environment)


@guardrail(
    "A Service of the proxy is open only within the cluster or to named addresses",
    "Set sourceRanges in proxy.exposure, or use an Ingress or a Gateway in front of the proxy.",
    shared="advisory",
)
def the_proxy_is_exposed_to_named_callers(environment: Environment) -> Iterator[Breach]:
    """A NetworkPolicy protects only if the cluster enforces it and preserves the caller's address.

    A NodePort is open to every host that can reach a node. A Service with externalIPs can take over traffic for other
    hosts.
    """
    for service in environment.of_kind("Service"):
        if not _servers(environment, service):
            yield from (Breach(service, what) for what in _open(environment, service))
    for item in environment.of_kind("Endpoints", "EndpointSlice"):
        yield Breach(item, "it routes a Service to addresses that no selector chose")


def _open(environment: Environment, service: Mapping[str, Any]) -> Iterator[str]:
    spec = mapping(service.get("spec"))
    proxies = environment.behind(service)
    kind = text(spec.get("type")) or "ClusterIP"
    ranges = [text(each) for each in items(spec.get("loadBalancerSourceRanges"))]
    if kind == "LoadBalancer":
        if not ranges or any(map(is_wide, ranges)):
            named = ", ".join(ranges) or "no range"
            yield f"it is open to all addresses: loadBalancerSourceRanges names {named}"
    elif kind != "ClusterIP":
        yield f"it is of type {kind}"
    if spec.get("externalIPs"):
        yield "it has externalIPs"
    if proxies and any(port.get("targetPort", port.get("port")) in _ADMIN for port in mappings(spec.get("ports"))):
        yield "it exposes the proxy's port for probes and metrics"


def _servers(environment: Environment, service: Mapping[str, Any]) -> list[Pod]:
    return [pod for pod in environment.behind(service) if not pod.is_proxy]


def _exposing(item: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]]) -> Iterator[Breach]:
    """Yield a breach for each server's Service whose name is anywhere in a route from outside."""
    named = dict.fromkeys(value for _, value in texts(item.get("spec")))
    for name, service in servers.items():
        if any(value == name or value.startswith(f"{name}.{namespace_of(service)}") for value in named):
            yield Breach(item, f"it routes to Service {name}, which selects servers")


def _network(environment: Environment) -> Iterator[Breach]:
    policies = environment.of_kind("NetworkPolicy")
    for pod in environment.workloads:
        if pod.is_proxy:
            continue
        ours = [policy for policy in policies if matches(at(policy, "spec", "podSelector"), pod.labels)]
        types = [at(policy, "spec", "policyTypes") for policy in ours]
        if not any(each is None or "Ingress" in items(each) for each in types):
            yield Breach(pod.maker, "no NetworkPolicy restricts who can connect to its pods")
        for policy in ours:
            for rule in mappings(at(policy, "spec", "ingress")):
                proxies_only = environment.are_all(mappings(rule.get("from")), lambda pod: pod.is_proxy)
                if _opens_inference(rule) and not (proxies_only or admits_own_namespace(environment, pod, rule)):
                    what = f"it lets pods other than the proxy connect to {pod.maker.get('kind')}/{name_of(pod.maker)}"
                    yield Breach(policy, what)


def _opens_inference(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule opens a port that is not only for metrics. A rule without ports opens all of them."""
    ports = mappings(rule.get("ports"))
    return not ports or any(one.get("port") not in _METRICS or one.get("endPort") for one in ports)
