"""The typed model of the stack definition: what `stacks/inference.yaml` can say.

`Platform` reads as the table of contents. It is the common part of a definition; each environment and each data plane
may lay its own values over it (`stacks.overlays` has the rules). The defaults of the whole project stand here and
nowhere else; the JSON schema and `docs/definition.md` are generated from these classes.
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
    """What an environment consists of."""

    images: tuple[Image, ...]
    """Container images, by name and tag."""
    pull_secrets: tuple[PullSecret, ...] = ()
    """Secrets to pull images with."""
    pods: Pods = Pods()
    """What all pods carry."""
    eviction_policies: tuple[EvictionPolicy, ...] = ()
    """Eviction policies of your own."""
    datasets: tuple[Dataset, ...] = ()
    """Volumes that hold model repositories."""
    servers: Annotated[tuple[AnyServer, ...], Field(min_length=1)]
    """Inference servers and their pools."""
    proxy: Proxy = Proxy()
    """The inference proxy."""
    models: tuple[Model, ...] = ()
    """Models that clients may call."""
    network: Network = Network()
    """Who may talk to whom."""
    domino: Domino | None = None
    """Integration with a Domino platform."""
    mesh: Mesh | None = None
    """Istio settings, where the cluster runs with it."""
    monitoring: Monitoring = Monitoring()
    """Metrics and alerts."""
    gate: Gate = Gate()
    """What must hold in a data plane before a rollout goes on to the next."""
    guardrails: Guardrails = Guardrails()
    """What no stack may do: severities, exceptions and a ceiling for GPUs."""


_KUBERNETES_OWN = "belongs to Kubernetes; an environment owns its namespace"
Namespace = Annotated[DnsLabel, Without(r"^(default|kube-.*)$", _KUBERNETES_OWN)]
_OURS = r"^(((app|pod-security)\.)?kubernetes\.io/|tidegate\.dev/|domino-compute$)"
NamespaceLabels = Annotated[Labels, Without(_OURS, "is a label that Tidegate or Kubernetes sets itself")]


class Environment(Renamable):
    """One environment, such as dev or prod; keys of the common part may stand here too and are laid over it."""

    namespace: Namespace | None = None
    """Its namespace; by default `tidegate-` and its name, the oldest of those that it had."""
    production: bool = False
    """Whether production's rules hold: nobody is granted everything, and nobody else may write its datasets."""
    local: bool = False
    """Whether it is a trial on one machine: host paths and images without a digest are allowed."""
    labels: NamespaceLabels = Field(default_factory=dict)
    """Further labels of its namespace."""
    annotations: ForeignAnnotations = Field(default_factory=dict)
    """Annotations of its namespace."""
    rollout: RolloutOrder = RolloutOrder()
    """In which order it comes to its data planes."""
    promotion: Promotion = Promotion()
    """Who may bring versions of models into it, and which."""

    @model_validator(mode="after")
    def _production_is_no_trial(self) -> Self:
        if self.production and self.local:
            raise ValueError("production and local cannot stand together: a trial on one machine is no production")
        return self

    @model_validator(mode="after")
    def _name_is_an_alias(self) -> Self:
        if not is_alias(self.name):
            do = f"Choose another name, and add formerly: [{self.name}] if a cluster has this environment"
            raise ValueError(f"an environment cannot be called {self.name}: {ALIAS_RULE}. {do}")
        return self

    @model_validator(mode="after")
    def _namespace_is_its_own(self) -> Self:
        name = self.namespace_name
        if len(name) > 63:
            raise ValueError(f"the namespace {name} has {len(name)} characters, and it may have 63; say namespace")
        return self

    @property
    def namespace_name(self) -> str:
        """Name of its namespace."""
        return self.namespace or f"tidegate-{self.made_as}"


class DataPlane(Renamable):
    """One cluster; keys of the common part may stand here too and are laid over the environment's."""

    context: Text | None = None
    """Its kubeconfig context; by default its name, the oldest of those that it had."""
    environments: Annotated[tuple[DnsLabel, ...], Field(min_length=1)]
    """Environments that live there."""
    platform: DnsLabel | None = None
    """Name of the platform, where those of several definitions share the cluster: it tells whose stacks are whose."""
    wave: Annotated[int, Field(ge=1, le=100)] = 1
    """Place in a rollout: planes of a lower wave come first, those of the same wave together."""
    registries: dict[RegistryHost, RegistryMirror] = Field(default_factory=dict)
    """Mirrors: registry host of an image → what stands there instead, such as nvcr.io: mirror.example.com/nvcr."""
    storage_classes: dict[Literal["efs", "nfs", "csi", "hostPath"], DnsLabel] = Field(default_factory=dict)
    """Storage class for datasets of a kind: efs, nfs, csi or hostPath."""
    gpus: tuple[GpuNodes, ...] = ()
    """The GPUs it has; without this there is none, and pools that want one are refused."""

    @property
    def context_name(self) -> str:
        """Name of its kubeconfig context."""
        return self.context or self.made_as


class Header(Section):
    """The part of a definition that is not laid over: its environments and data planes."""

    environments: Annotated[tuple[Environment, ...], Field(min_length=1)]
    """Environments, each a small overlay."""
    data_planes: Annotated[tuple[DataPlane, ...], Field(min_length=1)]
    """Clusters, and which environments live in each."""
