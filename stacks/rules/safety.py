"""Safety: what may not happen by accident, above all in production."""

from collections.abc import Iterator

from ..definition.proxy import HttpRouteExposure, IngressExposure, LoadBalancerExposure
from ..problems import Problem
from ..stack import Stack
from .rule import stack_rule


@stack_rule("No environment variable is set twice for one container")
def no_variable_stands_twice(stack: Stack) -> Iterator[Problem]:
    """A container has each environment variable once."""
    for index, server in enumerate(stack.platform.servers):
        for where, name in server.variables.items():
            if name in stack.platform.pods.environment:
                what = f'{name} is a variable of all pods, and of server "{server.name}" too'
                do = "Say it here or in pods.environment, and not in both."
                yield stack.source.problem(("servers", index, server.kind, *where), what, do=do)


@stack_rule("Each issuer is configured once")
def no_issuer_stands_twice(stack: Stack) -> Iterator[Problem]:
    """A token names its issuer, and the proxy has to know which audiences and claims count."""
    issuers = [issuer.issuer for issuer in stack.platform.proxy.auth.oidc]
    for index, issuer in enumerate(issuers):
        if issuer in issuers[:index]:
            what = f"the issuer {issuer} stands twice"
            do = "Join their audiences in one."
            yield stack.source.problem(("proxy", "auth", "oidc", index, "issuer"), what, do=do)


@stack_rule("An access rule names its source if several sources exist", "advisory")
def access_rules_say_who_vouches_where_several_do(stack: Stack) -> Iterator[Problem]:
    """A name identifies a caller only together with its issuer: another issuer may give ci, or admins, to others."""
    proxy = stack.platform.proxy
    for index, rule in enumerate(proxy.access):
        if rule.source is not None:
            continue
        for key, several in (
            ("principals", proxy.auth.sources if rule.principals else []),
            ("groups", proxy.auth.issuers if rule.groups else []),
        ):
            if len(several) > 1:
                what = (
                    f'access rule "{rule.name}" does not say who vouches for its {key}: '
                    f"{', '.join(several)} may each give somebody such a name"
                )
                do = "Say which in source; a rule for each where several are meant."
                yield stack.source.problem(("proxy", "access", index, key), what, do=do)


@stack_rule("The network admits at least one caller", "advisory")
def somebody_may_call_the_proxy(stack: Stack) -> Iterator[Problem]:
    """The network admits named callers only; where an Ingress' controller runs, the definition has to say."""
    platform = stack.platform
    exposure = platform.proxy.exposure
    if isinstance(exposure, HttpRouteExposure | LoadBalancerExposure) or platform.network.callers:
        return
    if isinstance(exposure, IngressExposure):
        what = "the Ingress' controller may not call the proxy"
        do = "Name the controller's namespace under network.callers."
        yield stack.source.problem(("proxy", "exposure", "kind"), what, do=do)
    elif platform.domino is None:
        what = f'nobody may call the proxy of environment "{stack.environment.name}"'
        do = "Name callers under network.callers."
        yield stack.source.problem(("network", "callers"), what, do=do)


@stack_rule("The proxy has a way to authenticate callers, and an access rule", "advisory")
def somebody_can_authenticate_and_call(stack: Stack) -> Iterator[Problem]:
    """Without an issuer, API keys or Domino, the proxy refuses every caller; so it does without an access rule."""
    lacking = "" if stack.platform.proxy.access else "access rule"
    key, do = "access", "Add rules under proxy.access: what none grants is refused."
    if not stack.platform.proxy.auth.sources:
        lacking, key, do = "way to know its callers", "auth", "Add proxy.auth.oidc, apiKeys or dominoPrincipal."
    if lacking:
        what = f'the proxy of environment "{stack.environment.name}" has no {lacking}, so it refuses everybody'
        yield stack.source.problem(("proxy", key), what, do=do)


@stack_rule("The Ingress controller uses the proxy's protocol")
def an_ingress_speaks_what_the_proxy_serves(stack: Stack) -> Iterator[Problem]:
    """A controller that speaks HTTPS to a proxy without a certificate, or plain HTTP to one with it, gets no answer."""
    proxy = stack.platform.proxy
    said = proxy.exposure.annotations if isinstance(proxy.exposure, IngressExposure) else {}
    for key, value in said.items():
        if key.endswith("/backend-protocol") and value.upper().endswith("S") == (proxy.tls is None):
            serves = "plain HTTP: it has no tls" if proxy.tls is None else "HTTPS, by its tls"
            what = f"{key} lets the controller speak {value} to the proxy, which serves {serves}"
            do = "Add proxy.tls, or take the annotation away." if proxy.tls is None else "Write HTTPS."
            yield stack.source.problem(("proxy", "exposure", "annotations", key), what, do=do)


@stack_rule("The certificate behind an HTTPRoute is the Gateway's")
def a_gateway_is_given_no_certificate_of_the_proxy(stack: Stack) -> Iterator[Problem]:
    """A Gateway ends TLS itself, at its listener, and speaks plain HTTP to what is behind an HTTPRoute."""
    proxy = stack.platform.proxy
    if proxy.tls is not None and isinstance(proxy.exposure, HttpRouteExposure):
        why = "the Gateway would speak plain HTTP to a proxy that serves HTTPS"
        what = f"tls and an exposure of kind http-route cannot stand together: {why}"
        do = "Take tls away (the Gateway's listener holds the certificate), or expose by ingress or load-balancer."
        yield stack.source.problem(("proxy", "tls"), what, do=do)
