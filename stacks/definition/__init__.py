"""The typed model of the definition: the keys of `stacks/inference.yaml`.

`Platform` is the common part of a definition. Each environment and each data plane can override its values
(`stacks.overlays` has the rules). All defaults of the project are here. The JSON schema and `docs/definition.md` are
generated from these classes.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from tidegate_contracts.environments import ALIAS_RULE, is_alias

from .base import DnsLabel, ForeignAnnotations, Labels, Renamable, Section, Text, Without
from .datasets import Dataset
from .environment import Domino, Mesh, Monitoring, Network, PullSecret
from .guardrails import Guardrails
from .images import Image, RegistryHost, RegistryMirror
from .kinds import AnyServer
from .models import Model
from .placement import GpuNodes
from .pods import Pods
from .policies import EvictionPolicy
from .promotion import Promotion
from .proxy import Proxy
from .rollout import Gate, RolloutOrder


class Platform(Section):
    """The common part of a definition."""

    images: tuple[Image, ...]
    """Container images, by name and tag."""
    pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets to pull images with."""
    pods: Pods = Pods()
    """Settings of all pods."""
    eviction_policies: tuple[EvictionPolicy, ...] = ()
    """Custom eviction policies."""
    datasets: tuple[Dataset, ...] = ()
    """Volumes with model repositories."""
    servers: Annotated[tuple[AnyServer, ...], Field(min_length=1)]
    """Inference servers and their pools."""
    proxy: Proxy = Proxy()
    """The inference proxy."""
    models: tuple[Model, ...] = ()
    """Models that clients can call."""
    network: Network = Network()
    """Callers of the proxy, and addresses that pods can reach."""
    domino: Domino | None = None
    """Integration with a Domino platform."""
    mesh: Mesh | None = None
    """Istio settings, if the cluster uses Istio."""
    monitoring: Monitoring = Monitoring()
    """Metrics and alerts."""
    gate: Gate = Gate()
    """Health checks of a data plane before a rollout continues."""
    guardrails: Guardrails = Guardrails()
    """Severities and exceptions of guardrails, and limits on GPUs and cost."""


_KUBERNETES_OWN = "belongs to Kubernetes, but Tidegate manages the whole namespace of an environment"
Namespace = Annotated[DnsLabel, Without(r"^(default|kube-.*)$", _KUBERNETES_OWN)]
_OURS = r"^(((app|pod-security)\.)?kubernetes\.io/|tidegate\.dev/|domino-compute$)"
NamespaceLabels = Annotated[Labels, Without(_OURS, "is a label that Tidegate or Kubernetes sets itself")]


class Environment(Renamable):
    """An environment, such as dev or prod."""

    namespace: Namespace | None = None
    """Namespace. The default is `tidegate-` and the (oldest) name."""
    production: bool = False
    """Whether the rules and guardrails of production apply."""
    local: bool = False
    """Whether it is a trial on one machine, with host paths and images without a digest."""
    labels: NamespaceLabels = Field(default_factory=dict)
    """Labels of the namespace."""
    annotations: ForeignAnnotations = Field(default_factory=dict)
    """Annotations of the namespace."""
    rollout: RolloutOrder = RolloutOrder()
    """Order of a rollout over data planes, besides their `wave`."""
    promotion: Promotion = Promotion()
    """Conditions for deploying and promoting models."""

    @model_validator(mode="after")
    def _production_is_no_trial(self) -> Self:
        if self.production and self.local:
            raise ValueError("production and local exclude each other: remove one")
        return self

    @model_validator(mode="after")
    def _name_is_an_alias(self) -> Self:
        if not is_alias(self.name):
            do = f"Set another name, and add formerly: [{self.name}] if a cluster has this environment"
            raise ValueError(f"an environment cannot have the name {self.name}: {ALIAS_RULE}. {do}")
        return self

    @model_validator(mode="after")
    def _namespace_is_its_own(self) -> Self:
        name = self.namespace_name
        if len(name) > 63:
            raise ValueError(f"the namespace {name} has {len(name)} characters, but the limit is 63: set namespace")
        return self

    @property
    def namespace_name(self) -> str:
        return self.namespace or f"tidegate-{self.made_as}"


class DataPlane(Renamable):
    """A cluster."""

    context: Text | None = None
    """Kubeconfig context. The default is the (oldest) name."""
    environments: Annotated[tuple[DnsLabel, ...], Field(min_length=1)]
    """Environments on this data plane."""
    platform: DnsLabel | None = None
    """Name of the platform, if several definitions share the cluster."""
    wave: Annotated[int, Field(ge=1, le=100)] = 1
    """Position in a rollout, lower waves first."""
    registries: dict[RegistryHost, RegistryMirror] = Field(default_factory=dict)
    """Mirrors of registries, such as nvcr.io: mirror.example.com/nvcr."""
    storage_classes: dict[Literal["efs", "nfs", "csi", "hostPath"], DnsLabel] = Field(default_factory=dict)
    """Storage class of datasets of kind efs, nfs, csi or hostPath."""
    gpus: tuple[GpuNodes, ...] = ()
    """GPUs. Without this key, `tidegate check` refuses pools on GPUs."""

    @property
    def context_name(self) -> str:
        return self.context or self.made_as


class Header(Section):
    """The part of a definition without overlays: its environments and data planes."""

    environments: Annotated[tuple[Environment, ...], Field(min_length=1)]
    """Environments, each a small overlay."""
    data_planes: Annotated[tuple[DataPlane, ...], Field(min_length=1)]
    """Clusters, and the environments on each."""
