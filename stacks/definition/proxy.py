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
        raise ValueError(f"{url!r} names no host, or no port, that could be asked")
    address(host)
    return url


HttpUrl = Annotated[str, form(HTTP_URL, "https://idp.example.com/realms/x"), AfterValidator(_with_host)]
Page = Annotated[str, form(HTTP_URL, "https://docs.example.com/runbooks.html"), AfterValidator(_with_host)]

_SOURCE = r"^(api-keys|domino|https?://[^\s/?#@]+(/[^\s?#]*)?)$"
Source = Annotated[str, form(_SOURCE, "https://idp.example.com/realms/x, api-keys or domino")]

_TWO_ADDRESSES = (
    "begins like one of the proxy's own addresses, which it answers without the path, too: choose another, such as "
    "/inference"
)
ExposurePath = Annotated[HttpPath, Without(proxy_process.AMBIGUOUS_PATH, _TWO_ADDRESSES)]


class ClusterIpExposure(Section):
    """Reachable inside the cluster only."""

    kind: Literal["cluster-ip"]


class IngressExposure(Section):
    """Reachable through an Ingress.

    Its controller has defaults of its own, which annotations change. ingress-nginx refuses bodies above 1 MB
    (nginx.ingress.kubernetes.io/proxy-body-size, against the proxy's bodyLimit) and waits 60 seconds for an answer
    (proxy-read-timeout). AWS's asks for / to see whether a pod is well, where the proxy has nothing: it needs
    alb.ingress.kubernetes.io/healthcheck-path: /healthz, and Google's a BackendConfig with that path, which
    serviceAnnotations names. `tidegate check` lists the annotations that a known controller lacks.
    """

    kind: Literal["ingress"]
    host: Host
    """Host name; data planes may share it only behind something that divides the calls between them."""
    path: ExposurePath = "/"
    """Path below which the proxy answers over HTTP; not one that begins like its own addresses (/v2, /models …)."""
    class_name: ObjectName | None = None
    """IngressClass; the cluster's default without one."""
    annotations: Annotated[
        Annotations,
        Without(
            r"/(.*-snippets?|default-backend|mirror-.*|(permanent|temporal)-redirect)$",
            "leads requests past the proxy, or lets whoever may write it run what they like in the ingress controller",
        ),
    ] = Field(default_factory=dict)
    """Annotations for the ingress controller; none with configuration of its own, or with another backend."""
    service_annotations: Annotations = Field(default_factory=dict)
    """Annotations of the proxy's Service, which some controllers read, such as cloud.google.com/backend-config."""


class HttpRouteExposure(Section):
    """Reachable through a Gateway (Gateway API).

    A Gateway of GKE (class gke-…) asks for / to see whether a pod is well, where the proxy has nothing. It needs a
    HealthCheckPolicy (networking.gke.io/v1) that targets the Service inference-proxy, with requestPath /healthz; with
    proxy.tls also type HTTPS.
    """

    kind: Literal["http-route"]
    host: Host
    """Host name; data planes may share it only behind something that divides the calls between them."""
    path: ExposurePath = "/"
    """Path below which the proxy answers over HTTP; not one that begins like its own addresses (/v2, /models …)."""
    gateway: ObjectName
    """Gateway to attach to."""
    gateway_namespace: DnsLabel
    """Namespace of that Gateway."""
    listener: ObjectName | None = None
    """Listener (section name) of the Gateway; all that fit without one."""


class LoadBalancerExposure(Section):
    """Reachable through a load balancer of the cloud."""

    kind: Literal["load-balancer"]
    annotations: Annotations = Field(default_factory=dict)
    """Annotations for the cloud's load balancer controller."""
    source_ranges: tuple[Cidr, ...] = ()
    """Address ranges that may connect; everybody without."""


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
    """Secret of type kubernetes.io/tls in the environment's namespace."""


ProxyTls = Annotated[CertManagerTls | SecretTls, Field(discriminator="kind")]


_ANY_AUDIENCE = (
    "the issuer has no audiences: tokens that it made for any other application would be accepted here; name the "
    "audience of this proxy"
)


class OidcIssuer(Conditional):
    """An identity provider whose tokens are accepted."""

    conditions: ClassVar = (Condition("an_audience_is_named", _ANY_AUDIENCE, needs=("audiences",)),)
    issuer: HttpUrl
    """The `iss` of its tokens."""
    audiences: tuple[Text, ...] = ()
    """Accepted `aud` values; at least one is needed."""
    jwks_url: HttpUrl | None = None
    """Where its keys are; found by OpenID discovery without it."""
    groups_claim: Text = "groups"
    """Claim that lists a caller's groups (Keycloak in Domino: user_groups)."""


class ApiKeys(Section):
    """API keys. The secret holds an entry for each principal: its name, and the hash of its key, never the key."""

    secret: ObjectName
    """Secret in the environment's namespace."""


_NO_AUTHORITY = "say where the certificates are: in a configMap, or a secret"
_TWO_AUTHORITIES = "configMap and secret cannot stand together; in an overlay, null takes the inherited one away"


class CertificateAuthority(Named, Conditional):
    """A private certificate authority, in the environment's namespace."""

    conditions: ClassVar = (
        Condition("certificates_are_somewhere", _NO_AUTHORITY, needs=("configMap", "secret")),
        Condition("a_config_map_stands_alone", _TWO_AUTHORITIES, forbids=("secret",), when={"configMap": ()}),
    )
    config_map: ObjectName | None = None
    """ConfigMap that holds its certificates."""
    secret: ObjectName | None = None
    """Secret that holds them, instead."""
    key: Annotated[str, form(r"^[-._a-zA-Z0-9]+$", "a key of a ConfigMap, such as ca.crt", max_length=253)] = "ca.crt"
    """Its key there: PEM, one certificate after another."""


class Auth(Section):
    """Whom the proxy believes."""

    oidc: tuple[OidcIssuer, ...] = ()
    """OpenID Connect issuers."""
    api_keys: ApiKeys | None = None
    """API keys."""
    domino_principal: bool = False
    """Whether Domino's own principal endpoint may identify callers; needs the Domino integration."""
    authorities: tuple[CertificateAuthority, ...] = ()
    """Private certificate authorities, believed of the servers of issuers and of Domino beside those that the proxy's
    image knows; a changed one is taken over without a restart."""

    @property
    def issuers(self) -> list[str]:
        """Whose tokens are accepted: they alone tell groups."""
        return [issuer.issuer for issuer in self.oidc]

    @property
    def sources(self) -> list[str]:
        """Who may vouch for callers, as access rules name them."""
        more = {routing.API_KEYS: self.api_keys is not None, routing.DOMINO: self.domino_principal}
        return self.issuers + [source for source, is_there in more.items() if is_there]


_NOBODY = "the rule names neither principals nor groups, so it grants nothing"


class AccessRule(Named, Conditional):
    """Grants actions on servers and models; what no rule grants is refused."""

    conditions: ClassVar = (Condition("somebody_is_named", _NOBODY, needs=("principals", "groups")),)
    principals: tuple[Text, ...] = ()
    """Callers by name (`sub`, or the API key's principal); globs are allowed."""
    groups: tuple[Text, ...] = ()
    """Callers by group; globs are allowed. Only tokens of issuers tell groups."""
    source: Source | None = None
    """What has to vouch for the caller: the issuer of one of auth.oidc, api-keys or domino; without it,
    any that is believed. Where auth has several, each may call somebody else by the same name."""
    actions: Annotated[tuple[Literal["infer", "inspect"], ...], Field(min_length=1)] = ("infer", "inspect")
    """infer (call models), inspect (metadata, configuration, statistics)."""
    servers: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Servers, as globs."""
    models: Annotated[tuple[Text, ...], Field(min_length=1)] = ("*",)
    """Models, as globs."""


class RateLimit(Section):
    """How much one principal may ask of one model, over all replicas of the proxy."""

    requests_per_minute: Annotated[int, Field(ge=1, le=10_000_000)] = 1000
    """Requests a minute."""
    burst: Annotated[int, Field(ge=1, le=10_000_000)] = 100
    """Requests that may come at once before the rate counts."""
    tokens_per_minute: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """Tokens a minute, of prompts and completions, at servers of kind openai, counted when answers end: until what was
    used too much is made up for, there are no further calls. No bound without it."""


class Timeouts(Section):
    """How long the proxy waits."""

    connect_seconds: Seconds = 2
    """Seconds to wait for a connection to a server."""
    request_seconds: Seconds = 60
    """Seconds to wait for an answer, when the client names no deadline."""
    drain_seconds: Seconds = 60
    """Seconds that requests in flight may take to end when a replica stops."""


class Tracing(Section):
    """Spans of calls, for an OpenTelemetry collector. Callers' trace context goes on to the servers without it too."""

    endpoint: HttpUrl
    """Base address of a collector that takes OTLP over HTTP, such as http://collector.tracing.svc:4318; network.reach
    has to let the proxy reach it."""
    percent: Annotated[int, Field(ge=0, le=100)] = 1
    """Share of the calls that get a span, in per cent; a caller that a rule grants the call decides by its traceparent.
    """


class Metrics(Section):
    """How many series the proxy's metrics have: some 30 for each model and protocol that is named, and some 10 for each
    caller."""

    models: Annotated[int, Field(ge=0, le=100_000)] = 1000
    """Models that have series by name: those that are called first. The others are counted together, as `*`."""
    callers: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Callers that are counted by name, likewise; with 0 nothing is counted by caller."""


PROXY: Final = proxy_process.ACCOUNT
"""Name of the proxy's objects, and of its pods' account."""
REPLICAS: Final = 2
"""Replicas of the proxy where neither a number nor an autoscaler is said."""


class Proxy(Section):
    """The inference proxy: the one entry point to every model."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many; 2 when neither this nor autoscaling is said."""
    autoscaling: CpuScaling | None = None
    """Bounds for an autoscaler."""
    resources: Resources = Resources()
    """CPU and memory of each replica."""
    exposure: Exposure = ClusterIpExposure(kind="cluster-ip")
    """How it is reached from outside its namespace."""
    tls: ProxyTls | None = None
    """Certificate it serves HTTPS with; plain HTTP without one."""
    auth: Auth = Auth()
    """How callers prove who they are."""
    access: tuple[AccessRule, ...] = ()
    """Who may do what; what no rule grants is refused."""
    rate_limit: RateLimit = RateLimit()
    """How much one principal may ask."""
    body_limit: ByteQuantity = "64Mi"
    """Largest request body. One that must be whole first (/predict, of a sequence model) has at
    most 9/64 of the proxy's memory.
    """
    concurrency: Annotated[int, Field(ge=1, le=100_000)] = 1024
    """Requests that one replica works on at once; more wait in a bounded queue."""
    timeouts: Timeouts = Timeouts()
    """How long it waits."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Level of its log."""
    tracing: Tracing | None = None
    """Where spans of its calls go; none are made without it."""
    metrics: Metrics | None = None
    """How many models and callers its metrics tell apart: 1000 and none, without it."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that its nodes must carry. Its pods spread over zones and nodes anyway."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints to tolerate."""
    priority_class: ObjectName | None = None
    """PriorityClass of its pods."""

    def service_url(self, namespace: str) -> str:
        """Return the URL at which pods of the cluster reach it in a namespace."""
        if self.tls:
            return f"https://{PROXY}.{namespace}.svc:{proxy_process.HTTPS_SERVICE_PORT}"
        return f"http://{PROXY}.{namespace}.svc:{proxy_process.HTTP_SERVICE_PORT}"

    _replicas_or_autoscaling = model_validator(mode="after")(replicas_or_autoscaling)
