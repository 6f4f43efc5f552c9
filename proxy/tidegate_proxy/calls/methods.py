"""The methods that there are. Nothing else can be called: no path of a caller's is ever passed on as it was spelled."""

from dataclasses import dataclass, field
from typing import Literal

from ..paths import Action

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"


@dataclass(frozen=True, slots=True)
class Method:
    """One that is about a model, and is passed on to it."""

    name: str
    action: Action
    streams: bool = False
    """Whether messages come and go for as long as both sides want."""
    whole: bool = True
    """Whether a request is short, without tensors."""
    path: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", f"/{SERVICE}/{self.name}".encode())


Own = Literal["ServerLive", "ServerReady", "ServerMetadata", "Check", "Watch", "List"]

_OF_MODELS = (
    Method("ModelInfer", "infer", whole=False),
    Method("ModelStreamInfer", "infer", streams=True, whole=False),
    Method("ModelReady", "inspect"),
    Method("ModelMetadata", "inspect"),
    Method("ModelConfig", "inspect"),
    Method("ModelStatistics", "inspect"),
)
OF_MODELS = {method.path: method for method in _OF_MODELS}
"""By path."""
OWN: dict[bytes, Own] = {
    b"/inference.GRPCInferenceService/ServerLive": "ServerLive",
    b"/inference.GRPCInferenceService/ServerReady": "ServerReady",
    b"/inference.GRPCInferenceService/ServerMetadata": "ServerMetadata",
    b"/grpc.health.v1.Health/Check": "Check",
    b"/grpc.health.v1.Health/Watch": "Watch",
    b"/grpc.health.v1.Health/List": "List",
}
"""Those that the proxy answers itself, by path."""
