"""A stand-in for Triton's gRPC that can be slow, silent, failing or gone."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from tidegate_contracts import triton
from tidegate_contracts.triton import MEMORY_MODEL
from tidegate_eviction.triton.memory import PROGRAM_ID
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc

SECRET = "5" * 64


@dataclass
class StandIn(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    bytes: dict[str, int] = field(default_factory=dict)
    """The memory of each model. These models are in the repository."""
    load_seconds: float = 0.0
    unload_seconds: float = 0.0
    failing: dict[str, str] = field(default_factory=dict)  # Loads that fail, with Triton's error.
    silent: set[str] = field(default_factory=set)  # Models that load without a response.
    stuck: set[str] = field(default_factory=set)  # Models that stay ready after an unload.
    folderless: set[str] = field(default_factory=set)
    """Models whose directory was removed: the index does not list them."""
    leaks: set[str] = field(default_factory=set)  # Models whose memory is not freed.
    hangs: bool = False
    server: str = "1:1"
    calls: list[tuple[str, str]] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)  # The configuration of each model's last load.
    states: dict[str, tuple[str, str]] = field(default_factory=dict)
    leaked_bytes: int = 0
    port: int = 0
    has_reader: bool = False
    queries: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def loaded_bytes(self) -> int:
        held = ("LOADING", "READY", "UNLOADING")
        return sum(self.bytes[name] for name, (state, _) in self.states.items() if state in held)

    def did(self, method: str) -> list[str]:
        return [model for called, model in self.calls if called == method]

    async def ServerLive(self, *_: Any) -> Any:
        await self._answers()
        return messages.ServerLiveResponse(live=True)

    async def RepositoryIndex(self, _: Any, context: Any) -> Any:
        await self._allowed(context)
        self.queries += 1
        answer = messages.RepositoryIndexResponse()
        for name in self.bytes.keys() - self.folderless:
            state, reason = self.states.get(name, ("", ""))
            answer.models.add(name=name, version="1" if state else "", state=state, reason=reason)
        return answer

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        await self._allowed(context)
        name = request.model_name
        self.calls.append(("load", name))
        if name == MEMORY_MODEL and MEMORY_MODEL not in self.failing:
            self.has_reader = True
            return messages.RepositoryModelLoadResponse()
        self.configs[name] = request.parameters["config"].string_param
        if name not in self.bytes:
            await context.abort(
                grpc.StatusCode.INTERNAL, f"failed to load '{name}', failed to poll from model repository"
            )
        self.states[name] = ("LOADING", "")
        # Triton continues when the caller has left.
        await asyncio.shield(asyncio.ensure_future(self._load(name)))
        if name in self.silent:
            await asyncio.sleep(3600)
        if (why := self.failing.get(name)) is not None:
            await context.abort(grpc.StatusCode.INTERNAL, why)
        return messages.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        await self._allowed(context)
        name = request.model_name
        self.calls.append(("unload", name))
        if name not in self.stuck:
            self.states[name] = ("UNLOADING", "")
            self._unloading = asyncio.ensure_future(self._unload(name))
        return messages.RepositoryModelUnloadResponse()

    async def ModelStatistics(self, *_request: Any) -> Any:
        await self._answers()
        answer = messages.ModelStatisticsResponse()
        for name, (state, _) in self.states.items():
            if state == "READY":
                answer.model_stats.add(name=name, version="1")
        return answer

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        await self._answers()
        if request.model_name != MEMORY_MODEL or not self.has_reader:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{request.model_name}'")
        used = 1000 + self.leaked_bytes + self.loaded_bytes
        reading = {"program": PROGRAM_ID, "server": self.server, "process": used, "gpu": None}
        text = json.dumps(reading).encode()
        return messages.ModelInferResponse(raw_output_contents=[struct.pack("<I", len(text)) + text])

    async def _load(self, name: str) -> None:
        await asyncio.sleep(self.load_seconds)
        why = self.failing.get(name)
        self.states[name] = ("READY", "") if why is None else ("UNAVAILABLE", why)

    async def _unload(self, name: str) -> None:
        await asyncio.sleep(self.unload_seconds)
        self.leaked_bytes += self.bytes[name] if name in self.leaks else 0
        self.states[name] = ("UNAVAILABLE", "unloaded")

    async def _allowed(self, context: Any) -> None:
        await self._answers()
        if (f"triton-grpc-protocol-{triton.RESTRICTED_KEY}", SECRET) not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted, expecting header 'x'")

    async def _answers(self) -> None:
        while self.hangs:
            await asyncio.sleep(0.02)


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(stand_in: StandIn, port: int = 0) -> AsyncIterator[StandIn]:
    """Listen until the block ends. Then connections break, as if Triton was killed."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(stand_in, server)
    stand_in.port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield stand_in
    finally:
        await server.stop(None)
