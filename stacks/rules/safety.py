"""Rules of safety: callers, issuers, certificates and variables are unambiguous."""

from collections.abc import Iterator

from ..definition.proxy import HttpRouteExposure, IngressExposure, LoadBalancerExposure
from ..problems import Problem
from ..stack import Stack
from .rule import stack_rule


@stack_rule("No environment variable is set twice for one container")
def no_variable_stands_twice(stack: Stack) -> Iterator[Problem]:
    for index, server in enumerate(stack.platform.servers):
        for where, name in server.variables.items():
            if name in stack.platform.pods.environment:
                what = f'{name} is a variable of all pods, and of server "{server.name}" too'
                do = "Remove it here, or from pods.environment."
                yield stack.source.problem(("servers", index, server.kind, *where), what, do=do)


@stack_rule("Each issuer is configured once")
def no_issuer_stands_twice(stack: Stack) -> Iterator[Problem]:
    """A token names its issuer, so the audiences and claims of that issuer must be unambiguous."""
    issuers = [issuer.issuer for issuer in stack.platform.proxy.auth.oidc]
    for index, issuer in enumerate(issuers):
        if issuer in issuers[:index]:
            what = f"proxy.auth.oidc has the issuer {issuer} twice"
            do = "Remove one, and add its audiences to the other."
            yield stack.source.problem(("proxy", "auth", "oidc", index, "issuer"), what, do=do)


@stack_rule("An access rule names its source if several sources exist", "advisory")
def access_rules_say_who_vouches_where_several_do(stack: Stack) -> Iterator[Problem]:
    """A name identifies a caller only together with its issuer. Another issuer can give the name to others."""
    proxy = stack.platform.proxy
    for index, rule in enumerate(proxy.access):
        if rule.source is not None:
            continue
        for key, several in (
            ("principals", proxy.auth.sources if rule.principals else []),
            ("groups", proxy.auth.issuers if rule.groups else []),
        ):
            if len(several) > 1:
                what = f'access rule "{rule.name}" has no source for its {key}, but proxy.auth trusts several: '
                what += ", ".join(several)
                do = "Set source. Add a rule for each source if you mean several."
                yield stack.source.problem(("proxy", "access", index, key), what, do=do)


@stack_rule("The network admits at least one caller", "advisory")
def somebody_may_call_the_proxy(stack: Stack) -> Iterator[Problem]:
    """Network policies admit only `network.callers`. Tidegate does not know the namespace of an Ingress controller."""
    platform = stack.platform
    exposure = platform.proxy.exposure
    if isinstance(exposure, HttpRouteExposure | LoadBalancerExposure) or platform.network.callers:
        return
    if isinstance(exposure, IngressExposure):
        what = "network.callers is empty, so the Ingress controller cannot reach the proxy"
        do = "Add the controller's namespace to network.callers."
        yield stack.source.problem(("proxy", "exposure", "kind"), what, do=do)
    elif platform.domino is None:
        what = f'environment "{stack.environment.name}" admits no callers: network.callers is empty'
        do = "Add callers to network.callers."
        yield stack.source.problem(("network", "callers"), what, do=do)


@stack_rule("The proxy can authenticate callers, and has an access rule", "advisory")
def somebody_can_authenticate_and_call(stack: Stack) -> Iterator[Problem]:
    """Without an issuer, API keys or Domino, or without an access rule, the proxy refuses every request."""
    lacking = "" if stack.platform.proxy.access else "access rule"
    key, do = "access", "Add rules to proxy.access."
    if not stack.platform.proxy.auth.sources:
        lacking, key, do = "way to authenticate callers", "auth", "Add proxy.auth.oidc, apiKeys or dominoPrincipal."
    if lacking:
        what = f'the proxy of environment "{stack.environment.name}" has no {lacking}, so it refuses every request'
        yield stack.source.problem(("proxy", key), what, do=do)


@stack_rule("The Ingress controller uses the proxy's protocol")
def an_ingress_speaks_what_the_proxy_serves(stack: Stack) -> Iterator[Problem]:
    """A controller gets no response if it uses HTTPS for a proxy without a certificate, or HTTP for one with it."""
    proxy = stack.platform.proxy
    annotations = proxy.exposure.annotations if isinstance(proxy.exposure, IngressExposure) else {}
    for key, value in annotations.items():
        if key.endswith("/backend-protocol") and value.upper().endswith("S") == (proxy.tls is None):
            serves = "plain HTTP without proxy.tls" if proxy.tls is None else "HTTPS because of proxy.tls"
            what = f"{key} is {value}, but the proxy serves {serves}"
            do = "Add proxy.tls, or remove the annotation." if proxy.tls is None else "Set it to HTTPS."
            yield stack.source.problem(("proxy", "exposure", "annotations", key), what, do=do)


@stack_rule("The certificate behind an HTTPRoute is the Gateway's")
def a_gateway_is_given_no_certificate_of_the_proxy(stack: Stack) -> Iterator[Problem]:
    """A Gateway terminates TLS at its listener, and uses plain HTTP for the backends of an HTTPRoute."""
    proxy = stack.platform.proxy
    if proxy.tls is not None and isinstance(proxy.exposure, HttpRouteExposure):
        what = "proxy.tls does not work with an exposure of kind http-route"
        why = "The Gateway would use plain HTTP for a proxy that serves HTTPS."
        do = "Remove tls, because the Gateway's listener has the certificate. Or set kind to ingress or load-balancer."
        yield stack.source.problem(("proxy", "tls"), what, why, do)
