"""The inference proxy: replicas, exposure, authentication, access rules and limits."""

from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator
from tidegate_contracts import proxy_process, routing

from .base import (
    HTTP_URL,
    Annotations,
    ByteQuantity,
    Cidr,
    Condition,
    Conditional,
    CpuScaling,
    DnsLabel,
    Host,
    HttpPath,
    Labels,
    Named,
    ObjectName,
    Resources,
    Seconds,
    Section,
    Text,
    Without,
    address,
    form,
    replicas_or_autoscaling,
)
from .pods import Toleration


def _with_host(url: str) -> str:
    try:
        host, port = urlsplit(url).hostname or "", urlsplit(url).port
    except ValueError:
        host, port = "", 0
    if not host or "%" in host or port == 0:
        raise ValueError(f"{url!r} has no valid host or port")
    address(host)
    return url


HttpUrl = Annotated[str, form(HTTP_URL, "https://idp.example.com/realms/x", "URL"), AfterValidator(_with_host)]
Page = Annotated[str, form(HTTP_URL, "https://docs.example.com/runbooks.html"), AfterValidator(_with_host)]

_SOURCE = r"^(api-keys|domino|https?://[^\s/?#@]+(/[^\s?#]*)?)$"
Source = Annotated[str, form(_SOURCE, "an issuer's URL, `api-keys` or `domino`")]

_TWO_ADDRESSES = (
    "starts like a path of the proxy's API, which the proxy also serves without this prefix: set another path, such as "
    "/inference"
)
ExposurePath = Annotated[HttpPath, Without(proxy_process.AMBIGUOUS_PATH, _TWO_ADDRESSES)]


class ClusterIpExposure(Section):
    """Only inside the cluster."""

    kind: Literal["cluster-ip"]


class IngressExposure(Section):
    """Through an Ingress.

    `tidegate check` lists the annotations that a known controller needs, such as for large bodies, long responses and
    health checks at /healthz.
    """

    kind: Literal["ingress"]
    host: Host
    """Host name. Data planes can share it only behind a load balancer over them."""
    path: ExposurePath = "/"
    """Path prefix over HTTP. It cannot start like a path of the proxy's API."""
    class_name: ObjectName | None = None
    """IngressClass. The default is the cluster's."""
    annotations: Annotated[
        Annotations,
        Without(
            r"/(.*-snippets?|default-backend|mirror-.*|(permanent|temporal)-redirect)$",
            "bypasses the proxy, or injects configuration into the ingress controller",
        ),
    ] = Field(default_factory=dict)
    """Annotations for the controller, except snippets and other backends."""
    service_annotations: Annotations = Field(default_factory=dict)
    """Annotations of the proxy's Service, such as cloud.google.com/backend-config."""


class HttpRouteExposure(Section):
    """Through a Gateway (Gateway API).

    A Gateway of GKE needs a HealthCheckPolicy (networking.gke.io/v1) with requestPath /healthz for the Service
    inference-proxy.
    """

    kind: Literal["http-route"]
    host: Host
    """Host name. Data planes can share it only behind a load balancer over them."""
    path: ExposurePath = "/"
    """Path prefix over HTTP. It cannot start like a path of the proxy's API."""
    gateway: ObjectName
    """Gateway of the route."""
    gateway_namespace: DnsLabel
    """Namespace of the Gateway."""
    listener: ObjectName | None = None
    """Listener (section name) of the Gateway. The default is all that match."""


class LoadBalancerExposure(Section):
    """Through a cloud load balancer."""

    kind: Literal["load-balancer"]
    annotations: Annotations = Field(default_factory=dict)
    """Annotations for its controller."""
    source_ranges: tuple[Cidr, ...] = ()
    """Address ranges that may connect. The default is all."""


Exposure = Annotated[
    ClusterIpExposure | IngressExposure | HttpRouteExposure | LoadBalancerExposure, Field(discriminator="kind")
]


class CertificateIssuer(Section):
    """An issuer of cert-manager."""

    issuer: ObjectName
    """Name of the issuer."""
    issuer_kind: Literal["ClusterIssuer", "Issuer"] = "ClusterIssuer"
    """Kind of the issuer."""


class CertManagerTls(CertificateIssuer):
    """A certificate that cert-manager issues."""

    kind: Literal["cert-manager"]


class SecretTls(Section):
    """A certificate from an existing secret."""

    kind: Literal["secret"]
    secret: ObjectName
    """Secret of type kubernetes.io/tls."""


ProxyTls = Annotated[CertManagerTls | SecretTls, Field(discriminator="kind")]


_ANY_AUDIENCE = (
    "the issuer has no audiences, so the proxy would accept its tokens for any other application: set the audience of "
    "this proxy"
)


class OidcIssuer(Conditional):
    """An identity provider whose tokens the proxy trusts."""

    conditions: ClassVar = (Condition("an_audience_is_named", _ANY_AUDIENCE, needs=("audiences",)),)
    issuer: HttpUrl
    """The `iss` of its tokens."""
    audiences: tuple[Text, ...] = ()
    """Accepted `aud` values, at least one."""
    jwks_url: HttpUrl | None = None
    """Address of its keys. By default OpenID discovery finds them."""
    groups_claim: Text = "groups"
    """Claim with a caller's groups (Domino: user_groups)."""


class ApiKeys(Section):
    """API keys. The Secret has an entry for each principal, with its name and the hash of its key, never the key."""

    secret: ObjectName
    """Secret with the hash of each principal's key."""


_NO_AUTHORITY = "the certificates are missing: set configMap or secret"
_TWO_AUTHORITIES = "configMap and secret exclude each other: remove one (in an overlay, set it to null)"


class CertificateAuthority(Named, Conditional):
    """A private certificate authority, in the environment's namespace."""

    conditions: ClassVar = (
        Condition("certificates_are_somewhere", _NO_AUTHORITY, needs=("configMap", "secret")),
        Condition("a_config_map_stands_alone", _TWO_AUTHORITIES, forbids=("secret",), when={"configMap": ()}),
    )
    config_map: ObjectName | None = None
    """ConfigMap with its certificates."""
    secret: ObjectName | None = None
    """Secret with its certificates, instead of configMap."""
    key: Annotated[str, form(r"^[-._a-zA-Z0-9]+$", "a key of a ConfigMap, such as ca.crt", max_length=253)] = "ca.crt"
    """Key of the certificates (PEM)."""


class Auth(Section):
    """Sources of identities that the proxy trusts."""

    oidc: tuple[OidcIssuer, ...] = ()
    """OpenID Connect issuers."""
    api_keys: ApiKeys | None = None
    """API keys."""
    domino_principal: bool = False
    """Whether Domino's principal endpoint authenticates callers. Needs `domino`."""
    authorities: tuple[CertificateAuthority, ...] = ()
    """Private certificate authorities of issuers and Domino, which the proxy reloads without a restart."""

    @property
    def issuers(self) -> list[str]:
        """Return the trusted issuers. Only their tokens contain groups."""
        return [issuer.issuer for issuer in self.oidc]

    @property
    def sources(self) -> list[str]:
        """Return the trusted sources of identities, with their names in access rules."""
        more = {routing.API_KEYS: self.api_keys is not None, routing.DOMINO: self.domino_principal}
        return self.issuers + [source for source, is_there in more.items() if is_there]


_GRANTS_NOTHING = "the rule names neither principals nor groups, so it grants nothing: set one of them"


class AccessRule(Named, Conditional):
    """Grants actions on servers and models. The proxy refuses every request that no rule grants."""

    conditions: ClassVar = (Condition("callers_are_named", _GRANTS_NOTHING, needs=("principals", "groups")),)
    principals: tuple[Text, ...] = ()
    """Callers by name (`sub`, or an API key's principal), as globs."""
    groups: tuple[Text, ...] = ()
    """Callers by group, as globs. Only issuers' tokens contain groups."""
    source: Source | None = None
    """Source of the identity. Set it if `auth` has several, because names can coincide."""
    actions: Annotated[tuple[Literal["infer", "inspect"], ...], Field(min_length=1)] = ("infer", "inspect")
    """infer (call models), inspect (metadata, configuration, statistics)."""
    servers: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Servers, as globs."""
    models: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Models, as globs."""


class RateLimit(Section):
    """Rate limit of one principal for one model, over all replicas of the proxy."""

    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    """Requests a minute."""
    burst: Annotated[int, Field(ge=1, le=10_000_000)] = 100
    """Requests at once, before the rate applies."""
    tokens_per_minute: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """Tokens of prompts and completions a minute (kind openai). The proxy refuses requests until an excess is
    balanced."""


class Timeouts(Section):
    """Timeouts of the proxy."""

    connect_seconds: Seconds = 2
    """Timeout of a connection to a server."""
    request_seconds: Seconds = 60
    """Timeout of a request without a deadline."""
    drain_seconds: Seconds = 60
    """Seconds that requests in flight have to end when a replica stops."""


class Tracing(Section):
    """Spans of requests for an OpenTelemetry collector. The proxy always forwards the trace context of callers."""

    endpoint: HttpUrl
    """Base address of OTLP over HTTP, such as http://collector.tracing.svc:4318. Needs an entry in network.reach."""
    percent: Annotated[int, Field(ge=0, le=100)] = 1
    """Percentage of requests with a span. The traceparent of an authorised caller overrides it."""


class Metrics(Section):
    """Limits on the series of the proxy's metrics: about 30 for each model and protocol, and 10 for each caller."""

    models: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """Models with separate series: the first to be called. Others share the label `*`."""
    callers: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Callers with separate series, likewise."""


PROXY: Final = proxy_process.ACCOUNT
"""Name of the proxy's objects, and of its pods' service account."""
REPLICAS: Final = 2
"""Replicas of the proxy without replicas and autoscaling."""


class Proxy(Section):
    """The inference proxy, the entry point to every model."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Replicas. The default without autoscaling is 2."""
    autoscaling: CpuScaling | None = None
    """Autoscaler."""
    resources: Resources = Resources()
    """CPU and memory of each replica."""
    exposure: Exposure = ClusterIpExposure(kind="cluster-ip")
    """Access from outside its namespace."""
    tls: ProxyTls | None = None
    """Certificate for HTTPS. Without one, the proxy serves plain HTTP."""
    auth: Auth = Auth()
    """Authentication of callers."""
    access: tuple[AccessRule, ...] = ()
    """Access rules."""
    rate_limit: RateLimit = RateLimit()
    """Rate limit of one principal for one model, over all replicas."""
    body_limit: ByteQuantity = "64Mi"
    """Largest request body. For bodies that the proxy buffers whole, the limit is also 9/64 of its memory."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Requests at a time in each replica. More wait in a bounded queue."""
    timeouts: Timeouts = Timeouts()
    """Timeouts."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Log level."""
    tracing: Tracing | None = None
    """Export of spans to an OpenTelemetry collector. Without it there are none."""
    metrics: Metrics | None = None
    """Number of models and callers with separate series."""
    node_selector: Labels = Field(default_factory=dict)
    """Node labels. Its pods always spread over zones and nodes."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that its pods tolerate."""
    priority_class: ObjectName | None = None
    """PriorityClass of its pods."""

    def service_url(self, namespace: str) -> str:
        """Return the URL of its Service in a namespace, for pods of the cluster."""
        if self.tls:
            return f"https://{PROXY}.{namespace}.svc:{proxy_process.HTTPS_SERVICE_PORT}"
        return f"http://{PROXY}.{namespace}.svc:{proxy_process.HTTP_SERVICE_PORT}"

    _replicas_or_autoscaling = model_validator(mode="after")(replicas_or_autoscaling)
