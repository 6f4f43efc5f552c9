"""Settings of all pods, and tolerations."""

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
_EQUAL = "operator Equal compares with a value: set value"
_EXISTS = "operator Exists tolerates every value: remove value"


class Pods(Section):
    """Settings of all pods of servers and of the proxy."""

    annotations: Annotated[ForeignAnnotations, _GIVES_DEVICES] = Field(default_factory=dict)
    """Annotations."""
    environment: Annotated[
        dict[EnvironmentName, str], without_ours("AZURE_STORAGE_AUTH_TYPE", "TIDEGATE_.*"), CHOOSES_GPUS
    ] = Field(default_factory=dict)
    """Environment variables of all containers, such as HTTPS_PROXY (which needs an entry in network.reach). Never a
    secret."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Pull policy. Kubernetes' default is IfNotPresent."""


class Toleration(Conditional):
    """A taint that pods tolerate."""

    conditions: ClassVar = (
        Condition("equal_has_a_value", _EQUAL, needs=("value",), when={"operator": ("Equal",)}),
        Condition("exists_has_none", _EXISTS, forbids=("value",), when={"operator": ("Exists",)}),
    )
    key: LabelKey
    """Key of the taint."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal, or Exists (any value). The default is Equal if there is a value."""
    value: LabelValue | None = None
    """Value. The default is any."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect. The default is any."""
