"""What is said of the proxy: exposure, authentication, access rules and limits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .fields import (
    Annotations,
    Bytes,
    Cidr,
    Count,
    DnsLabel,
    Glob,
    Host,
    HttpPath,
    HttpUrl,
    IdentitySource,
    Image,
    Labels,
    ObjectName,
    Replicas,
    Seconds,
    Text,
    Weight,
)
from .pods import ResourcesArgs, SecretArgs, TolerationArgs
from .scaling import CpuScalingArgs


@dataclass(frozen=True, kw_only=True)
class ClusterIpArgs:
    """Reachable inside the cluster only."""

    kind: Literal["cluster-ip"] = "cluster-ip"
    """By its Service."""


@dataclass(frozen=True, kw_only=True)
class IngressArgs:
    """Reachable through an Ingress."""

    kind: Literal["ingress"] = "ingress"
    """By an Ingress."""
    host: Host
    """Host name."""
    path: HttpPath
    """Path prefix."""
    class_name: ObjectName | None = None
    """IngressClass; the cluster's default without one."""
    annotations: Annotations = field(default_factory=dict)
    """Annotations for the ingress controller."""


@dataclass(frozen=True, kw_only=True)
class HttpRouteArgs:
    """Reachable through a Gateway (Gateway API)."""

    kind: Literal["http-route"] = "http-route"
    """By a route of a Gateway."""
    host: Host
    """Host name."""
    path: HttpPath
    """Path prefix."""
    gateway: ObjectName
    """Gateway to attach to."""
    gateway_namespace: DnsLabel
    """Namespace of that Gateway; its pods may call the proxy."""
    listener: ObjectName | None = None
    """Listener (section name) of the Gateway; all that fit without one."""


@dataclass(frozen=True, kw_only=True)
class LoadBalancerArgs:
    """Reachable through a load balancer of the cloud."""

    kind: Literal["load-balancer"] = "load-balancer"
    """By a Service of type LoadBalancer."""
    annotations: Annotations = field(default_factory=dict)
    """Annotations for the cloud's load balancer controller."""
    source_ranges: Sequence[Cidr] = ()
    """Address ranges that may connect; everybody without."""


ExposureArgs = ClusterIpArgs | IngressArgs | HttpRouteArgs | LoadBalancerArgs


@dataclass(frozen=True, kw_only=True)
class CertificateArgs:
    """Who issues the proxy's certificate (cert-manager)."""

    issuer: ObjectName
    """Name of the issuer."""
    issuer_kind: Literal["ClusterIssuer", "Issuer"]
    """Kind of the issuer."""


@dataclass(frozen=True, kw_only=True)
class TlsArgs:
    """The certificate that the proxy serves HTTPS with."""

    secret: ObjectName
    """Secret of type kubernetes.io/tls."""
    certificate: CertificateArgs | None = None
    """Who issues it, where cert-manager puts it into the secret; it is there already without."""


@dataclass(frozen=True, kw_only=True)
class OidcIssuerArgs:
    """An identity provider whose tokens are accepted."""

    issuer: HttpUrl
    """The `iss` of its tokens."""
    audiences: Sequence[Text]
    """Accepted `aud` values."""
    jwks_url: HttpUrl | None = None
    """Where its keys are; found by OpenID discovery without it."""
    groups_claim: Text
    """Claim that lists a caller's groups (Keycloak in Domino: user_groups)."""


@dataclass(frozen=True, kw_only=True)
class AuthArgs:
    """Whom the proxy believes."""

    oidc: Sequence[OidcIssuerArgs] = ()
    """OpenID Connect issuers."""
    api_keys: SecretArgs | None = None
    """Secret with an entry for each principal: its name, and the hash of its key, never the key."""
    domino_principal: bool = False
    """Whether Domino's own principal endpoint may identify callers; needs the Domino integration."""


@dataclass(frozen=True, kw_only=True)
class AccessRuleArgs:
    """Grants actions on servers and models; what no rule grants is refused."""

    name: DnsLabel
    """Its name."""
    principals: Sequence[Glob] = ()
    """Callers by name (`sub`, or the API key's principal); globs are allowed."""
    groups: Sequence[Glob] = ()
    """Callers by group; globs are allowed. Only tokens of issuers tell groups."""
    source: IdentitySource | None = None
    """Who has to vouch for the caller: an issuer's URL, api-keys or domino; whoever is believed, without it."""
    actions: Sequence[Literal["infer", "inspect"]]
    """infer (call models), inspect (metadata, configuration, statistics)."""
    servers: Sequence[Glob]
    """Servers, as globs."""
    models: Sequence[Glob]
    """Models, as globs."""


@dataclass(frozen=True, kw_only=True)
class RateLimitArgs:
    """How much one principal may ask of one model, over all replicas of the proxy."""

    requests_per_minute: Count
    """Requests a minute."""
    burst: Count
    """Requests that may come at once before the rate counts."""


@dataclass(frozen=True, kw_only=True)
class TimeoutsArgs:
    """How long the proxy waits."""

    connect_seconds: Seconds
    """Seconds to wait for a connection to a server."""
    request_seconds: Seconds
    """Seconds to wait for an answer, when the client names no deadline."""
    drain_seconds: Seconds
    """Seconds that requests in flight may take to end when a replica stops."""


@dataclass(frozen=True, kw_only=True)
class TracingArgs:
    """Spans of calls, for an OpenTelemetry collector."""

    endpoint: HttpUrl
    """Base address of a collector that takes OTLP over HTTP."""
    percent: Weight
    """Share of the calls that get a span, in per cent; a caller that sends a traceparent decides for its own."""


@dataclass(frozen=True, kw_only=True)
class ProxyArgs:
    """The inference proxy: the one door to every model."""

    image: Image
    """Its image."""
    replicas: Replicas = 2
    """How many; without effect where an autoscaler owns the number."""
    autoscaling: CpuScalingArgs | None = None
    """Bounds for an autoscaler."""
    resources: ResourcesArgs
    """CPU and memory of each replica."""
    exposure: ExposureArgs
    """How it is reached from outside its namespace."""
    tls: TlsArgs | None = None
    """Certificate it serves HTTPS with; plain HTTP without one."""
    auth: AuthArgs
    """How callers prove who they are."""
    access: Sequence[AccessRuleArgs]
    """Who may do what; what no rule grants is refused."""
    rate_limit: RateLimitArgs
    """How much one principal may ask."""
    body_limit_bytes: Bytes
    """Largest request body."""
    concurrency: Count
    """Requests that one replica works on at once; more wait in a bounded queue."""
    timeouts: TimeoutsArgs
    """How long it waits."""
    log_level: Literal["debug", "info", "warning", "error"]
    """Level of its log."""
    tracing: TracingArgs | None = None
    """Where spans of its calls go; none are made without it."""
    node_selector: Labels = field(default_factory=dict)
    """Labels that its nodes must carry."""
    tolerations: Sequence[TolerationArgs] = ()
    """Taints to tolerate."""
    priority_class: ObjectName | None = None
    """PriorityClass of its pods."""
