"""Settings of pods, besides their containers: what all of them carry, and which taints some tolerate."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

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
