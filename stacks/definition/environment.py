"""What surrounds the servers in a namespace: network, Domino, monitoring."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import NOT_IN_VALUES, Cidr, Condition, Conditional, DnsLabel, Labels, Named, ObjectName, Port, Section

_ALONE = "cidr stands alone: labels cannot be joined to an address range"
_WHO = "say who: namespaceLabels (and podLabels), or a cidr"


class _Peer(Named, Conditional):
    conditions: ClassVar = (
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

    by: Annotated[tuple[Literal["proxy", "servers"], ...], Field(min_length=1)]
    """Which pods may reach it: the proxy's, the servers', or both."""
    ports: tuple[Port, ...] = ()
    """TCP ports; every port without."""


class Dns(Section):
    """The cluster's DNS, which every pod may ask."""

    namespace: DnsLabel = "kube-system"
    """Namespace of its pods."""
    ports: Annotated[tuple[Port, ...], Field(min_length=1)] = (53,)
    """Ports that they listen on, UDP and TCP (OpenShift: 5353)."""
    addresses: tuple[Cidr, ...] = ()
    """Addresses of caches on the nodes, such as 169.254.20.10/32 of NodeLocal DNSCache."""


class Network(Section):
    """Who may talk to whom; everything else is refused in both directions."""

    callers: tuple[Caller, ...] = ()
    """Who may call the proxy."""
    reach: tuple[Reach, ...] = ()
    """What the environment's pods may reach, such as the identity provider or object storage."""
    dns: Dns = Dns()
    """The cluster's DNS."""


class Mesh(Section):
    """Istio: the proxy gets a sidecar, the servers get none. Pod Security "restricted" wants Istio's CNI plugin."""

    mode: Annotated[Literal["istio"], NOT_IN_VALUES]
    """Kind of the mesh."""
    mtls: Literal["PERMISSIVE", "STRICT"] = "PERMISSIVE"
    """PERMISSIVE also takes plain callers; STRICT only those in the mesh."""
    namespace: DnsLabel = "istio-system"
    """Namespace of the mesh's control plane."""


class Domino(Section):
    """Integration with a Domino platform in the same cluster."""

    platform_namespace: DnsLabel = "domino-platform"
    """Namespace of the platform's services."""
    compute_namespace: DnsLabel = "domino-compute"
    """Namespace of workspaces, jobs and model endpoints; its pods may call the proxy."""
    mesh: Mesh | None = None
    """Istio settings, where the platform runs with it."""


class PrometheusPeer(Section):
    """The Prometheus that may read metrics."""

    namespace: DnsLabel = "monitoring"
    """Its namespace."""
    pod_labels: Labels = Field(default_factory=dict)
    """Labels of its pods; every pod of that namespace without."""


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
    """Whether to make alert rules."""


class PullSecret(Named):
    """A secret of type kubernetes.io/dockerconfigjson in the environment's namespace."""

    name: ObjectName
    """Its name."""
