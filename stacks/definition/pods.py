"""What pods are told beside what they run: what all of them carry, and on which nodes some may be."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from .base import (
    CHOOSES_GPUS,
    Condition,
    Conditional,
    EnvironmentName,
    ForeignAnnotations,
    LabelKey,
    LabelValue,
    Section,
    Without,
    without_ours,
)

_GIVES_DEVICES = Without(r"^cdi\.k8s\.io/", "can let a container see any device of its node: placement chooses GPUs")
_EQUAL = "operator Equal compares with a value: say value"
_EXISTS = "operator Exists tolerates every value: take value away"
_COMPARED = "this operator compares with values: say values"
_PRESENCE = "this operator asks whether there is such a label: take values away"
_WITH_VALUES = ("In", "NotIn", "Gt", "Lt")


class Pods(Section):
    """What all pods of an environment carry, those of its servers and of its proxy."""

    annotations: Annotated[ForeignAnnotations, _GIVES_DEVICES] = Field(default_factory=dict)
    """Annotations of the pods."""
    environment: Annotated[
        dict[EnvironmentName, str], without_ours("AZURE_STORAGE_AUTH_TYPE", "TIDEGATE_.*"), CHOOSES_GPUS
    ] = Field(default_factory=dict)
    """Environment variables of all containers, such as HTTPS_PROXY and NO_PROXY for the web proxy of a company, which
    network.reach has to let them reach. Never a secret."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When nodes pull images; without it only those that they lack, and always where the tag is latest."""


class Toleration(Conditional):
    """A taint that pods may be scheduled on."""

    conditions: ClassVar = (
        Condition("equal_has_a_value", _EQUAL, needs=("value",), when={"operator": ("Equal",)}),
        Condition("exists_has_none", _EXISTS, forbids=("value",), when={"operator": ("Exists",)}),
    )
    key: LabelKey
    """Key of the taint."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal (the taint has this value) or Exists (whatever it has); by default Equal where there is a value."""
    value: LabelValue | None = None
    """Its value; without one every value is tolerated."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Its effect; all of them without one."""


class NodeRequirement(Conditional):
    """What one label of a node has to be."""

    conditions: ClassVar = (
        Condition("comparisons_have_values", _COMPARED, needs=("values",), when={"operator": _WITH_VALUES}),
        Condition("presence_has_none", _PRESENCE, forbids=("values",), when={"operator": ("Exists", "DoesNotExist")}),
    )
    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How it is compared; Gt and Lt, as numbers."""
    values: tuple[LabelValue, ...] | None = None
    """What it is compared with."""

    @model_validator(mode="after")
    def _numbers_are_compared_with_one_number(self) -> Self:
        """Gt and Lt have one whole number."""
        if self.operator in ("Gt", "Lt") and not (len(self.values or ()) == 1 and (self.values or "x")[0].isdecimal()):
            raise ValueError(f'operator {self.operator} compares with one whole number, such as values: ["40000"]')
        return self


class NodeTerm(Section):
    """Labels of nodes."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], Field(min_length=1)]
    """What they fulfil, all of it."""


class NodeTerms(Section):
    """Nodes that come into question."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], Field(min_length=1)]
    """Terms of which a node fulfils one."""


class PreferredNodes(Section):
    """Nodes that are preferred."""

    weight: Annotated[int, Field(ge=1, le=100)]
    """How much, against other preferences."""
    preference: NodeTerm
    """Which nodes."""


class NodeAffinity(Section):
    """On which nodes pods may be, and would better be."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    """Nodes that come into question."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] | None = None
    """Nodes that are preferred among them."""


class Affinity(Section):
    """Where pods may be and would better be, in Kubernetes' own words; nodeSelector says the simple case."""

    node_affinity: NodeAffinity
    """By the nodes' labels."""
