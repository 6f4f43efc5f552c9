"""Rules of exposure: known limits of Ingress controllers, Gateways and meshes in front of the proxy."""

import re
from collections.abc import Iterator

from ..definition.base import byte_count
from ..definition.proxy import PROXY, HttpRouteExposure, IngressExposure, LoadBalancerExposure
from ..problems import Problem, listed
from ..stack import Stack
from .rule import stack_rule

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_NGINX, _F5, _ALB = "nginx.ingress.kubernetes.io", "nginx.org", "alb.ingress.kubernetes.io"
_GOOGLE = ("networking.gke.io", "ingress.gcp.kubernetes.io", "cloud.google.com")
_BACKEND_CONFIG = "cloud.google.com/backend-config"
_APP_PROTOCOLS, _ITS_OLD_NAME = "cloud.google.com/app-protocols", "service.alpha.kubernetes.io/app-protocols"
_CONTROLLERS = {
    _F5: r"(?!)",  # F5's controller, which only its annotations distinguish from ingress-nginx.
    _NGINX: r"nginx",
    _ALB: r"(^|-)alb($|-)",
    **dict.fromkeys(_GOOGLE, r"^gce"),
}
"""The prefix of a controller's annotations, and a pattern of its usual class names."""


def _controller(exposure: IngressExposure) -> str:
    """Return the prefix of the annotations of an Ingress controller, or an empty string if it is not known."""
    prefixes = {key.partition("/")[0] for key in exposure.annotations}
    by_annotation = next((prefix for prefix in _CONTROLLERS if prefix in prefixes), "")
    name = exposure.class_name or ""
    return by_annotation or next((prefix for prefix, named in _CONTROLLERS.items() if re.search(named, name)), "")


@stack_rule("The annotations of an Ingress lift its controller's known limits", "advisory")
def an_ingress_lifts_its_controllers_limits(stack: Stack) -> Iterator[Problem]:
    """The defaults of a controller for protocol, health check, body size and timeout can be too small."""
    proxy = stack.platform.proxy
    exposure = proxy.exposure
    if not isinstance(exposure, IngressExposure) or not (prefix := _controller(exposure)):
        return
    lacking = dict(_lacking(stack, exposure, prefix))
    if not lacking:
        return
    keys = {key: value for key, (value, _) in lacking.items()}
    controller = f"the Ingress controller ({exposure.class_name or prefix})"
    what = f"{controller} does not do what the proxy needs: set {listed(keys)}"
    why = "\n".join(reason for _, reason in lacking.values())
    of_service = {key: value for key, value in keys.items() if key in (_BACKEND_CONFIG, _APP_PROTOCOLS)}
    of_ingress = {key: value for key, value in keys.items() if "/" in key and key not in of_service}
    do = f"Add to proxy.exposure.annotations: {_pairs(of_ingress)}." if of_ingress else ""
    if of_service:
        create = ", and create that BackendConfig" if _BACKEND_CONFIG in of_service else ""
        do += f" Add to proxy.exposure.serviceAnnotations: {_pairs(of_service)}{create}."
    if "network.callers" in keys:
        do += f" Add to network.callers: {keys['network.callers']}."
    key = "className" if exposure.class_name else "kind"
    yield stack.source.problem(("proxy", "exposure", key), what, why, do.strip())


def _pairs(annotations: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in annotations.items()) + "}"


def _lacking(stack: Stack, exposure: IngressExposure, prefix: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each annotation that is missing, or whose value is too small, with the value that it needs and why."""
    proxy, annotations = stack.platform.proxy, exposure.annotations
    body, seconds, is_https = byte_count(proxy.body_limit), proxy.timeouts.request_seconds, proxy.tls is not None
    https = "It sends plain HTTP to the proxy, which serves HTTPS because of proxy.tls."
    waits = f"It waits {{}} seconds for a response, but proxy.timeouts.requestSeconds is {seconds}."
    protocol = f"{prefix}/backend-protocol"
    if prefix in (_NGINX, _ALB) and is_https and protocol not in annotations:
        yield protocol, ("HTTPS", https)
    if prefix == _F5 and is_https and PROXY not in annotations.get(f"{_F5}/ssl-services", "").split(","):
        yield f"{_F5}/ssl-services", (PROXY, https)
    if prefix in (_NGINX, _F5):
        key = f"{_NGINX}/proxy-body-size" if prefix == _NGINX else f"{_F5}/client-max-body-size"
        if (size := _nginx_bytes(annotations.get(key, "1m"))) and size < body:
            limit = annotations.get(key, "1 MB")
            reason = f"It refuses bodies above {limit} with 413, but proxy.bodyLimit is {proxy.body_limit}."
            yield key, ('"0"', reason)
        key = f"{prefix}/proxy-read-timeout"
        if (least := _seconds(annotations.get(key, "60"))) < seconds:
            yield key, (f'"{seconds}"', waits.format(least))
    if prefix == _ALB:
        if annotations.get(f"{prefix}/target-type") != "ip":
            reason = "Its default, instance, needs a NodePort, but the proxy has a ClusterIP."
            yield f"{prefix}/target-type", ("ip", reason)
        if f"{prefix}/healthcheck-path" not in annotations:
            reason = "Its health check requests /, for which the proxy returns 404."
            yield f"{prefix}/healthcheck-path", ("/healthz", reason)
        if is_https and annotations.get(f"{prefix}/healthcheck-protocol", "HTTP") != "HTTPS":
            reason = "Its health check uses plain HTTP, but the proxy serves HTTPS."
            yield f"{prefix}/healthcheck-protocol", ("HTTPS", reason)
        key = f"{prefix}/load-balancer-attributes"
        found = re.search(r"idle_timeout\.timeout_seconds=(\d+)", annotations.get(key, ""))
        if (least := int(found[1]) if found else 60) < seconds:
            yield key, (f"idle_timeout.timeout_seconds={seconds}", waits.format(least))
    if prefix in _GOOGLE and not {_BACKEND_CONFIG, f"beta.{_BACKEND_CONFIG}"} & set(exposure.service_annotations):
        reason = "Its health check requests /, for which the proxy returns 404. The BackendConfig sets /healthz."
        yield _BACKEND_CONFIG, ("""'{"default": "inference-proxy"}'""", f"{reason} {waits.format(30)}")
    if prefix in _GOOGLE and is_https and not {_APP_PROTOCOLS, _ITS_OLD_NAME} & set(exposure.service_annotations):
        yield _APP_PROTOCOLS, ("""'{"https": "HTTPS"}'""", https)
    if prefix in (_ALB, *_GOOGLE) and not any(each.cidr for each in stack.platform.network.callers):
        ranges = "130.211.0.0/22 and 35.191.0.0/16" if prefix in _GOOGLE else "the load balancer's subnets"
        reason = "It calls the proxy from addresses outside the cluster, but network.callers has no address range."
        yield "network.callers", (f"{{name: load-balancer, cidr: …}} for {ranges}", reason)


def _nginx_bytes(text: str) -> int:
    """Return the bytes of a size in nginx's notation, or 0 for no limit or another notation."""
    found = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 0


def _seconds(text: str) -> int:
    """Return the seconds of a duration in the notation of controllers, or a very large number for another notation."""
    found = re.fullmatch(r"(\d+)(s|m|h|d)?", text)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2] or "s"] if found else 10**9


@stack_rule("A Gateway's pods are among the callers", "advisory")
def a_gateways_pods_are_among_the_callers(stack: Stack) -> Iterator[Problem]:
    """Network policies admit the Gateway's namespace, but many controllers run its pods in another, or elsewhere."""
    exposure, callers = stack.platform.proxy.exposure, stack.platform.network.callers
    if isinstance(exposure, HttpRouteExposure) and not any(
        each.cidr
        or exposure.gateway_namespace == each.namespace_labels.get(NAMESPACE_LABEL, exposure.gateway_namespace)
        for each in callers
    ):
        what = f"no entry of network.callers names the pods of Gateway {exposure.gateway}"
        why = (
            f"Network policies admit only namespace {exposure.gateway_namespace}. Envoy Gateway and others run pods "
            "in the controller's namespace, and clouds run a Gateway outside the cluster."
        )
        do = (
            f"Add {{name: gateway, namespaceLabels: {{{NAMESPACE_LABEL}: NAMESPACE}}}} to network.callers, with the "
            f"namespace of its pods ({exposure.gateway_namespace} or another), or an entry with a cidr."
        )
        yield stack.source.problem(("proxy", "exposure", "gatewayNamespace"), what, why, do)


@stack_rule("A strict mesh has only callers in the mesh", "advisory")
def a_strict_mesh_has_callers_in_the_mesh(stack: Stack) -> Iterator[Problem]:
    """With mtls STRICT, the proxy's sidecar refuses callers without a certificate of the mesh."""
    platform = stack.platform
    if platform.mesh is None or platform.mesh.mtls != "STRICT":
        return
    outside = [caller.name for caller in platform.network.callers if caller.cidr]
    outside += ["the load balancer"] if isinstance(platform.proxy.exposure, LoadBalancerExposure) else []
    if outside:
        what = f"mesh.mtls is STRICT, but {listed(outside)} cannot be in the mesh"
        why = "The proxy's sidecar refuses requests from addresses outside the mesh."
        do = "Set mesh.mtls to PERMISSIVE, or route these callers through a Gateway of the mesh."
        yield stack.source.problem(("mesh", "mtls"), what, why, do)
