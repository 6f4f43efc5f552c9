"""The arguments of a Triton: the definition's settings of its process, and what resolving makes of them."""

from typing import Annotated, Literal

from pydantic import Field

from stacks.definition.base import Without
from stacks.definition.triton import (
    OWNED_ARGUMENTS,
    OWNED_PREFIXES,
    RESOLVED_ARGUMENTS,
    ExtraArgument,
    TritonMetrics,
    TritonSettings,
)

from ..args import ServerArgs

# Arguments that Tidegate sets; those that it sets by way of the values, for want of a key, may stand there.
_OWNED = "|".join(sorted({*OWNED_ARGUMENTS} - {*RESOLVED_ARGUMENTS}))
_Argument = Annotated[
    ExtraArgument,
    Without(f"^--(({_OWNED})(=|$)|({'|'.join(OWNED_PREFIXES)}))", "is an argument that Tidegate sets itself"),
]


class TritonSettingsArgs(TritonSettings):
    """How the Triton process runs."""

    metrics_interval_milliseconds: Annotated[int, Field(ge=100, le=60_000)] = TritonMetrics().interval_milliseconds
    """Milliseconds between two readings of GPU and CPU metrics."""
    arguments: tuple[_Argument, ...] = ()
    """Further arguments of tritonserver."""


class TritonServerArgs(ServerArgs):
    """One logical Triton inference server: a model repository and the pools that serve it."""

    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    triton: TritonSettingsArgs = TritonSettingsArgs()
    """Settings of the Triton process."""
