"""The surroundings of the servers in a namespace: network, mesh, Domino, monitoring."""

import ipaddress
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from .base import (
    NOT_IN_VALUES,
    Cidr,
    Condition,
    Conditional,
    DnsLabel,
    Labels,
    Named,
    ObjectName,
    Percent,
    Port,
    Section,
    ServiceLabel,
)
from .proxy import HttpUrl, Page

_ALONE = "cidr and labels exclude each other: remove one, or add another entry"
RUNBOOKS: Final = "https://tidegate.dev/docs/runbooks.md"
_WHO = "the peer is missing: set namespaceLabels (and podLabels), or cidr"
_BY_WHOM = "the pods that can reach it are missing: set by, or server"
_ONE_SERVER = "server and by exclude each other: remove one"
_OF_A_RANGE = "except excludes addresses from a range, so it needs cidr: set it"


class _Peer(Named, Conditional):
    conditions: ClassVar[tuple[Condition, ...]] = (
        Condition("addresses_stand_alone", _ALONE, forbids=("namespaceLabels", "podLabels"), when={"cidr": ()}),
        Condition("a_peer_is_named", _WHO, needs=("namespaceLabels", "cidr")),
    )
    namespace_labels: Labels = Field(default_factory=dict)
    """Labels of namespaces, such as kubernetes.io/metadata.name: ingress-nginx."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels of pods there. The default is all."""
    cidr: Cidr | None = None
    """Address range, instead of labels."""


class Caller(_Peer):
    """Pods or addresses that can call the proxy."""


class Reach(_Peer):
    """An egress rule: pods or addresses outside the environment that its pods can reach."""

    conditions: ClassVar = (
        *_Peer.conditions,
        Condition("pods_are_named", _BY_WHOM, needs=("by", "server")),
        Condition("one_server_stands_alone", _ONE_SERVER, forbids=("by",), when={"server": ()}),
        Condition("exceptions_are_of_a_range", _OF_A_RANGE, needs=("cidr",), when={"except": ()}),
    )
    by: tuple[Literal["proxy", "servers"], ...] = ()
    """Pods that can reach it."""
    server: ServiceLabel | None = None
    """Server whose pods can reach it, instead of by."""
    ports: tuple[Port, ...] = ()
    """TCP ports. The default is all."""
    except_: tuple[Cidr, ...] = Field(default=(), alias="except")
    """Ranges to exclude from cidr. Private ranges and metadata addresses are always excluded: add an entry for them."""

    @model_validator(mode="after")
    def _exceptions_lie_in_the_range(self) -> Self:
        for excluded in self.except_:
            if self.cidr is not None and not lies_within(excluded, self.cidr):
                raise ValueError(f"except {excluded} is not in cidr {self.cidr}, or is all of it: set a part of it")
        return self


def lies_within(inner: str, outer: str) -> bool:
    """Return whether an address range is a proper part of another."""
    one, two = ipaddress.ip_network(inner), ipaddress.ip_network(outer)
    return one.version == two.version and one != two and one.subnet_of(two)  # type: ignore[arg-type]


class Dns(Section):
    """The cluster's DNS, which every pod can query."""

    namespace: DnsLabel = "kube-system"
    """Namespace of its pods."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (53,)
    """UDP and TCP ports of its pods (OpenShift: 5353)."""
    addresses: tuple[Cidr, ...] = ()
    """Addresses of DNS caches on nodes, such as 169.254.20.10/32."""


class ApiServer(Section):
    """The cluster's API server: the endpoints of the Service `kubernetes`, not the Service's address."""

    addresses: Annotated[tuple[Cidr, ...], Field(min_length=1)]
    """Address ranges of its endpoints, not of the Service `kubernetes`."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (443, 6443)
    """TCP ports."""


class Network(Section):
    """Callers of the proxy, and addresses that pods can reach. Network policies refuse all other traffic."""

    callers: tuple[Caller, ...] = ()
    """Callers of the proxy."""
    reach: tuple[Reach, ...] = ()
    """Egress rules, such as for the identity provider or object storage."""
    dns: Dns = Dns()
    """The cluster's DNS."""
    api_server: ApiServer | None = None
    """API server, for the keys that verify proxies. Without it, only network policies protect leases."""


class Mesh(Section):
    """Istio. The proxy gets a sidecar, but the servers do not. Pod Security "restricted" needs Istio's CNI plugin."""

    mode: Annotated[Literal["istio"], NOT_IN_VALUES]
    """Kind of the mesh."""
    mtls: Literal["PERMISSIVE", "STRICT"] = "PERMISSIVE"
    """PERMISSIVE also accepts callers outside the mesh."""
    namespace: DnsLabel = "istio-system"
    """Namespace of its control plane."""


class Domino(Section):
    """A Domino platform whose control plane, or Nexus data plane, is in the same cluster."""

    platform_namespace: DnsLabel = "domino-platform"
    """Namespace of its services."""
    compute_namespace: DnsLabel = "domino-compute"
    """Namespace of workspaces, jobs and model endpoints, which can call the proxy."""
    principal_url: HttpUrl | None = None
    """Address of a principal service outside platformNamespace, with an entry in network.reach. The proxy then cannot
    reach platformNamespace."""


class PrometheusPeer(Section):
    """Prometheus that can scrape metrics."""

    namespace: DnsLabel = "monitoring"
    """Namespace of its pods."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels of its pods. The default is all."""


class Objectives(Section):
    """Service-level objectives over 30 days. Alerts fire if the error budget burns too fast. 0 means no objective."""

    availability: Percent = "99.9"
    """Percentage of requests without HTTP 5xx (except 503) or gRPC UNKNOWN, DEADLINE_EXCEEDED, INTERNAL or
    DATA_LOSS."""
    answered: Percent = "99"
    """Percentage of requests without HTTP 503 or gRPC UNAVAILABLE."""
    latency: Percent = "95"
    """Percentage of requests within latencySeconds, with waits for loads. A stream is one request."""
    latency_seconds: Literal["0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30"] = "2.5"
    """Limit of the latency objective, in seconds."""


class Monitoring(Section):
    """Metrics and alerts through the Prometheus operator, which must be in the cluster."""

    operator: Annotated[bool, NOT_IN_VALUES] = False
    """Whether to create PodMonitors and PrometheusRules."""
    prometheus: Annotated[PrometheusPeer, NOT_IN_VALUES] = PrometheusPeer()
    """Prometheus that can scrape metrics."""
    interval_seconds: Annotated[int, Field(ge=5, le=600)] = 30
    """Seconds between scrapes."""
    labels: Labels = Field(default_factory=dict)
    """Labels by which the operator selects the objects, such as release: prometheus."""
    rules: bool = True
    """Whether to create alert rules (docs/runbooks.md)."""
    objectives: Objectives = Objectives()
    """Service-level objectives over 30 days, for alerts on error budgets. 0 means none."""
    runbooks: Page = RUNBOOKS
    """Page that alerts link to, such as that of your site (`make site`)."""
    dashboards: bool = False
    """Whether to create ConfigMaps with dashboards for Grafana's sidecar. Needs `operator`."""
    dashboard_labels: Labels = Field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels by which the sidecar selects them."""


class PullSecret(Named):
    """Secrets of type kubernetes.io/dockerconfigjson in the environment's namespace."""

    name: ObjectName
    """Name of the Secret."""
