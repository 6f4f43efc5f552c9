"""The methods there are. Nothing else can be called: no path of a caller's ever goes on as it was spelled."""

from dataclasses import dataclass, field
from typing import Literal

from tidegate_contracts.routing import Action

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"


@dataclass(frozen=True, slots=True)
class Method:
    """One that is about a model, and goes on to its server."""

    name: str
    action: Action
    streams: bool = False
    """Messages come and go for as long as both ends want."""
    whole: bool = True
    """Its request is short, without tensors."""
    path: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", f"/{SERVICE}/{self.name}".encode())


ProxyMethod = Literal["ServerLive", "ServerReady", "ServerMetadata", "Check", "Watch", "List"]

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
OF_PROXY: dict[bytes, ProxyMethod] = {
    b"/inference.GRPCInferenceService/ServerLive": "ServerLive",
    b"/inference.GRPCInferenceService/ServerReady": "ServerReady",
    b"/inference.GRPCInferenceService/ServerMetadata": "ServerMetadata",
    b"/grpc.health.v1.Health/Check": "Check",
    b"/grpc.health.v1.Health/Watch": "Watch",
    b"/grpc.health.v1.Health/List": "List",
}
"""Those that the proxy answers itself, by path."""
