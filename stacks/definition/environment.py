"""What surrounds the servers in a namespace: network, mesh, Domino, monitoring."""

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

_ALONE = "cidr stands alone: labels cannot be joined to an address range"
RUNBOOKS: Final = "https://tidegate.dev/docs/runbooks.md"
_WHO = "say who: namespaceLabels (and podLabels), or a cidr"
_BY_WHOM = "say which pods may reach it: by, or one server"
_ONE_SERVER = "server stands alone: it is instead of by"
_OF_A_RANGE = "except leaves addresses of a range out: it needs a cidr"


class _Peer(Named, Conditional):
    conditions: ClassVar[tuple[Condition, ...]] = (
        Condition("addresses_stand_alone", _ALONE, forbids=("namespaceLabels", "podLabels"), when={"cidr": ()}),
        Condition("somebody_is_meant", _WHO, needs=("namespaceLabels", "cidr")),
    )
    namespace_labels: Labels = Field(default_factory=dict)
    """Labels of the pods' namespaces, such as kubernetes.io/metadata.name: ingress-nginx."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels of their pods; every pod of those namespaces without."""
    cidr: Cidr | None = None
    """An address range, such as 10.0.0.0/8, instead of labels."""


class Caller(_Peer):
    """Pods or addresses that may call the proxy."""


class Reach(_Peer):
    """Pods or addresses outside the environment that its own pods may reach."""

    conditions: ClassVar = (
        *_Peer.conditions,
        Condition("somebody_reaches_it", _BY_WHOM, needs=("by", "server")),
        Condition("one_server_stands_alone", _ONE_SERVER, forbids=("by",), when={"server": ()}),
        Condition("exceptions_are_of_a_range", _OF_A_RANGE, needs=("cidr",), when={"except": ()}),
    )
    by: tuple[Literal["proxy", "servers"], ...] = ()
    """Which pods may reach it: the proxy's, the servers', or both."""
    server: ServiceLabel | None = None
    """The one server whose pods may reach it, instead of by."""
    ports: tuple[Port, ...] = ()
    """TCP ports; every port without."""
    except_: tuple[Cidr, ...] = Field(default=(), alias="except")
    """Ranges of cidr that stay closed, such as the cluster's own where they are no private ones. The private ranges and
    the clouds' metadata addresses that lie in a cidr stay closed anyway: what is meant there gets a cidr of its own."""

    @model_validator(mode="after")
    def _exceptions_lie_in_the_range(self) -> Self:
        """Kubernetes refuses a range that is left out of another without lying in it."""
        for left_out in self.except_:
            if self.cidr is not None and not lies_within(left_out, self.cidr):
                raise ValueError(f"except {left_out} lies not in the cidr {self.cidr}, or is all of it")
        return self


def lies_within(inner: str, outer: str) -> bool:
    """Say whether an address range is a part of another, and not all of it."""
    one, two = ipaddress.ip_network(inner), ipaddress.ip_network(outer)
    return one.version == two.version and one != two and one.subnet_of(two)  # type: ignore[arg-type]


class Dns(Section):
    """The cluster's DNS, which every pod may ask."""

    namespace: DnsLabel = "kube-system"
    """Namespace of its pods."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (53,)
    """Ports that they listen on, UDP and TCP (OpenShift: 5353)."""
    addresses: tuple[Cidr, ...] = ()
    """Addresses of caches on the nodes, such as 169.254.20.10/32 of NodeLocal DNSCache."""


class ApiServer(Section):
    """The cluster's API server, as pods reach it: the endpoints of the Service `kubernetes`, not its own address."""

    addresses: Annotated[tuple[Cidr, ...], Field(min_length=1)]
    """Address ranges, such as 10.0.0.0/28."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (443, 6443)
    """TCP ports that it listens on."""


class Network(Section):
    """Who may talk to whom; everything else is refused in both directions."""

    callers: tuple[Caller, ...] = ()
    """Who may call the proxy."""
    reach: tuple[Reach, ...] = ()
    """What the environment's pods may reach, such as the identity provider or object storage."""
    dns: Dns = Dns()
    """The cluster's DNS."""
    api_server: ApiServer | None = None
    """The API server, from which eviction policies read the keys of the proxies' tokens. They serve no lease before.
    Without this, in a cluster that enforces network policies, these alone protect leases."""


class Mesh(Section):
    """Istio: the proxy gets a sidecar, the servers get none. Pod Security "restricted" wants Istio's CNI plugin."""

    mode: Annotated[Literal["istio"], NOT_IN_VALUES]
    """Kind of the mesh."""
    mtls: Literal["PERMISSIVE", "STRICT"] = "PERMISSIVE"
    """PERMISSIVE also takes plain callers; STRICT only those in the mesh."""
    namespace: DnsLabel = "istio-system"
    """Namespace of the mesh's control plane."""


class Domino(Section):
    """Integration with a Domino platform: its control plane or, of Nexus, a data plane is in the same cluster."""

    platform_namespace: DnsLabel = "domino-platform"
    """Namespace of the platform's services."""
    compute_namespace: DnsLabel = "domino-compute"
    """Namespace of workspaces, jobs and model endpoints; its pods may call the proxy."""
    principal_url: HttpUrl | None = None
    """Whole address of the principal service that dominoPrincipal asks, where that is not the one in platformNamespace,
    as in remote data planes, such as https://domino.example.com/v4/auth/principal. The proxy may then no longer reach
    platformNamespace; an entry of network.reach lets it reach this address."""


class PrometheusPeer(Section):
    """The Prometheus that may read metrics."""

    namespace: DnsLabel = "monitoring"
    """Its namespace."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels of its pods; every pod of that namespace without."""


class Objectives(Section):
    """What callers may rely on over 30 days; alerts fire where it is broken too fast for that. 0 promises nothing."""

    availability: Percent = "99.9"
    """Percent of calls that do not fail: HTTP 5xx but for 503; gRPC UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, DATA_LOSS."""
    answered: Percent = "99"
    """Percent of calls that are not told to come again: HTTP 503, gRPC UNAVAILABLE."""
    latency: Percent = "95"
    """Percent of calls that take at most `latencySeconds`, waits for loads included; a stream is one call."""
    latency_seconds: Literal["0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30"] = "2.5"
    """Seconds that these calls take at most."""


class Monitoring(Section):
    """Metrics and alerts by the Prometheus operator, which must be in the cluster."""

    operator: Annotated[bool, NOT_IN_VALUES] = False
    """Whether to make PodMonitor and PrometheusRule objects."""
    prometheus: Annotated[PrometheusPeer, NOT_IN_VALUES] = PrometheusPeer()
    """Who may read metrics."""
    interval_seconds: Annotated[int, Field(ge=5, le=600)] = 30
    """Seconds between two readings."""
    labels: Labels = Field(default_factory=dict)
    """Labels by which the operator finds the objects, such as release: prometheus."""
    rules: bool = True
    """Whether to make alert rules: docs/runbooks.md says what each means, and what to do."""
    objectives: Objectives = Objectives()
    """What callers may rely on."""
    runbooks: Page = RUNBOOKS
    """Page that alerts lead to: of a site of your own (`make site`), such as https://docs.example.com/runbooks.html."""
    dashboards: bool = False
    """Whether to make Grafana's dashboards as ConfigMaps that its sidecar finds; they show what the operator's objects
    have read. `tidegate dashboards` writes them as files."""
    dashboard_labels: Labels = Field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels by which Grafana's sidecar finds them."""


class PullSecret(Named):
    """A secret of type kubernetes.io/dockerconfigjson in the environment's namespace."""

    name: ObjectName
    """Its name."""
