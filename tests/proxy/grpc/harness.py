"""A proxy in this process, in its own thread, between real gRPC clients and scripted replicas."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest
import uvloop
from tidegate_contracts import routing
from tidegate_proxy.serve import Proxy
from tidegate_proxy.settings import Tunables
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import (
    GRPCInferenceServiceServicer,
    GRPCInferenceServiceStub,
    add_GRPCInferenceServiceServicer_to_server,
)

from ..http.running_proxy import RunningProxy, running_proxy
from ..http.upstream import upstream
from ..rigs.issuer import Issuer, issuer

HOST = "127.0.0.1"
SERVICE = "inference.GRPCInferenceService"
RESERVED = (("grpc.so_reuseport", 0),)
LARGE = 4 << 20  # Bytes of the response of the model `large`.
RAISED = "in 'e', ValueError: 100 % ü in /models/m/1/model.py\n\nAt:\n  /models/m/1/model.py(7): execute\n"
"""Triton's error message for an exception in a model of its Python backend."""
Metadata = Sequence[tuple[str, str | bytes]]


@dataclass
class Stub(GRPCInferenceServiceServicer):  # type: ignore[misc]  # it has no types
    """A replica over real gRPC. It answers each model as `answers` defines, and records requests."""

    port: int = 0
    name: str = "a"
    host: str = HOST
    requests: list[tuple[str, Any, dict[str, str | bytes]]] = field(default_factory=list)
    """Method, message (of streams: each), and metadata."""
    seconds_left: list[float | None] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    hangs: bool = False  # Whether requests for readiness hang.
    release: threading.Event = field(default_factory=threading.Event)  # Releases hanging requests.
    server: Any = None

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self._note("ModelInfer", request, context)
        match request.model_name:
            case "hang":
                context.add_callback(self.cancelled.set)
                self.release.wait(20)
            case "broken":
                context.set_trailing_metadata((("why", "because"), ("why-bin", b"\x00\xff")))
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: 100 % ü")
            case "raises":
                context.abort(grpc.StatusCode.INTERNAL, RAISED)
            case "wordy":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "x" * int(request.id))
            case "slow":
                time.sleep(0.3)
            case "large":
                return pb.ModelInferResponse(model_name="large", raw_output_contents=[bytes(LARGE)])
        answer = pb.ModelInferResponse(
            model_name=request.model_name, model_version=request.model_version, id=request.id
        )
        answer.raw_output_contents.extend(request.raw_input_contents)
        answer.parameters["replica"].string_param = self.name
        context.send_initial_metadata((("from", self.name),))
        return answer

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Answer each message, and once more at the end of the request."""
        context.add_callback(self.cancelled.set)
        for request in requests:
            self._note("ModelStreamInfer", request, context)
            answer = pb.ModelStreamInferResponse()
            answer.infer_response.id = request.id
            answer.infer_response.model_version = request.model_version
            answer.infer_response.parameters["replica"].string_param = self.name
            if request.model_name == "large":
                answer.infer_response.raw_output_contents.append(bytes(LARGE))
            for _ in range(3 if request.model_name == "many" else 1):
                yield answer
            if request.model_name == "broken":
                context.abort(grpc.StatusCode.DATA_LOSS, "lost")
        if self.requests and self.requests[-1][1].model_name == "many":
            yield pb.ModelStreamInferResponse(error_message="the end")

    def ModelReady(self, request: Any, context: Any) -> Any:
        self._note("ModelReady", request, context)
        if self.hangs:
            self.release.wait(20)
        return pb.ModelReadyResponse(ready=True)

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        self._note("ModelMetadata", request, context)
        return pb.ModelMetadataResponse(name=request.name, versions=[request.version])

    def ModelConfig(self, request: Any, context: Any) -> Any:
        self._note("ModelConfig", request, context)
        return pb.ModelConfigResponse()

    def ModelStatistics(self, request: Any, context: Any) -> Any:
        self._note("ModelStatistics", request, context)
        return pb.ModelStatisticsResponse(model_stats=[pb.ModelStatistics(name=request.name)])

    def ServerMetadata(self, _request: Any, _context: Any) -> Any:
        return pb.ServerMetadataResponse(name=self.name)

    def _note(self, method: str, request: Any, context: Any) -> None:
        self.requests.append((method, request, dict(context.invocation_metadata())))
        self.seconds_left.append(context.time_remaining())

    def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        options = (("grpc.max_receive_message_length", -1), *RESERVED)
        self.server = grpc.server(ThreadPoolExecutor(24), options=options)
        add_GRPCInferenceServiceServicer_to_server(self, self.server)
        where = f"{self.host}:{self.port}"
        if credentials:
            self.port = self.server.add_secure_port(where, credentials)
        else:
            self.port = self.server.add_insecure_port(where)
        self.server.start()

    def stop(self, grace: float | None = None) -> None:
        self.release.set()
        self.server.stop(grace).wait(10)


@dataclass
class Rig:
    setup: RunningProxy
    loop: asyncio.AbstractEventLoop
    issuer: Issuer
    stubs: list[Stub]
    _channels: list[grpc.Channel] = field(default_factory=list)

    @property
    def proxy(self) -> Proxy:
        return self.setup.proxy

    @property
    def port(self) -> int:
        return self.proxy.ports["grpc"]

    def token(self, name: str = "alice", groups: Sequence[str] = ("all",), seconds: float = 600) -> str:
        return self.issuer.token(name, groups, seconds)

    def metadata(self, *more: tuple[str, str | bytes], token: str = "") -> Metadata:
        return (("authorization", f"Bearer {token or self.token()}"), *more)

    def channel(self, *options: tuple[str, Any], credentials: grpc.ChannelCredentials | None = None) -> grpc.Channel:
        where = f"{HOST}:{self.port}"
        own = (
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.enable_retries", 0),
        )
        given = (*own, *options)
        channel = grpc.secure_channel(where, credentials, given) if credentials else grpc.insecure_channel(where, given)
        self._channels.append(channel)
        return channel

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return _do(self.loop, work)

    def on_loop(self, work: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return work()

        return self.do(call())

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition, evaluated in the proxy's loop: counters can disagree in the middle of a step."""
        until(lambda: self.on_loop(true))

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()


def method(channel: grpc.Channel, name: str) -> Any:
    return getattr(GRPCInferenceServiceStub(channel), name)


def refused(call: Any, request: Any, metadata: Metadata = (), timeout: float = 5, **more: Any) -> Any:
    with pytest.raises(grpc.RpcError) as error:
        call(request, metadata=metadata, timeout=timeout, **more)
    return error.value


def replica_of(answer: Any) -> str:
    return str(answer.parameters["replica"].string_param)


def infer_request(model: str = "echo", data: bytes = b"tensor", **more: Any) -> Any:
    request = pb.ModelInferRequest(model_name=model, **more)
    tensor = request.inputs.add(name="INPUT", datatype="UINT8")
    tensor.shape.extend([len(data)])
    request.raw_input_contents.append(data)
    return request


class Talk:
    def __init__(self, rig: "Rig", *metadata: tuple[str, str], timeout: float | None = None, token: str = "") -> None:
        self._queue: Queue[Any] = Queue()
        sent = rig.metadata(*metadata, token=token)
        self.call = method(rig.channel(), "ModelStreamInfer")(
            iter(self._queue.get, None), metadata=sent, timeout=timeout
        )

    def send(self, *requests: Any) -> None:
        for request in requests:
            self._queue.put(request)

    def end(self) -> None:
        self._queue.put(None)

    def receive(self) -> Any:
        return next(self.call)

    def exchange(self, model: str = "echo", **more: Any) -> Any:
        self.send(infer_request(model, **more))
        return self.receive().infer_response

    def code(self) -> Any:
        with pytest.raises(grpc.RpcError):
            for _ in self.call:
                pass
        return self.call.code()


MODELS = ("echo", "slow", "hang", "broken", "many", "secret")


def tables(
    provider: Issuer, grpc_port: int, models: Sequence[str | routing.Model] = MODELS, **pool: Any
) -> tuple[routing.RoutingTable, routing.AccessTable]:
    """Return tables: `all` may do everything except see `secret`, and `lookers` may only inspect."""

    def server(name: str, host: str, **pool: Any) -> routing.Server:
        usual: dict[str, Any] = {"name": "one", "host": host, "http_port": 1, "grpc_port": 1, "loading": "preload"}
        return routing.Server(name=name, kind="triton", pools=(routing.Pool(**usual | pool),))

    servers = server("main", "pool.test", grpc_port=grpc_port, **pool), server("spare", "nowhere")
    found = [routing.Model(name=each, server="main", pool="one") if isinstance(each, str) else each for each in models]
    found.append(routing.Model(name="elsewhere", server="spare", pool="one"))
    visible = tuple(model.name for model in found if model.name != "secret")
    rules = (
        routing.AccessRule(name="all", groups=("all",), actions=("infer", "inspect"), servers=("*",), models=visible),
        routing.AccessRule(name="look", groups=("lookers",), actions=("inspect",), servers=("*",), models=visible),
    )
    table = routing.RoutingTable(environment="test", servers=servers, models=tuple(found))
    limit = routing.RateLimit(requests_per_minute=60, burst=200)
    return table, routing.AccessTable(issuers=(provider.entry,), rules=rules, rate_limit=limit)


RIG = Tunables(quiet_seconds=0.2, control_seconds=60.0)
"""No load balancer has to notice that the proxy stops, and a slow machine processes few calls per second."""


@contextmanager
def rig(
    folder: Path,
    replicas: int = 1,
    models: Sequence[str | routing.Model] = MODELS,
    credentials: grpc.ServerCredentials | None = None,
    pool: Mapping[str, Any] | None = None,
    tunables: Tunables = RIG,
    **settings: Any,
) -> Iterator[Rig]:
    defaults = {
        "body_limit_bytes": 8 << 20,
        "concurrency": 8,
        "connect_timeout_seconds": 1,
        "request_timeout_seconds": 3,
    }
    with issuer() as provider, _loop() as loop:
        stubs: list[Stub] = []
        for number in range(replicas):
            stub = Stub(stubs[0].port if stubs else 0, "abcdef"[number], f"127.0.0.{number + 1}")
            stub.start(credentials)
            stubs.append(stub)
        lives = [upstream(host=stub.host) for stub in stubs]  # They answer the health checks.
        ports = [_do(loop, live.__aenter__()).port for live in lives]
        addresses = [(socket.AF_INET, (stub.host, port)) for stub, port in zip(stubs, ports, strict=True)]
        has_tls = credentials is not None
        table, access = tables(provider, stubs[0].port, models, grpc_tls=has_tls, **pool or {})
        front = running_proxy(folder, *addresses, table=table, access=access, tunables=tunables, **defaults | settings)
        running = Rig(_do(loop, front.__aenter__()), loop, provider, stubs)
        try:
            yield running
        finally:
            running.close()
            for stub in stubs:
                stub.release.set()
            running.do(front.__aexit__(None, None, None))
            for stub, live in zip(stubs, lives, strict=True):
                stub.stop()
                running.do(live.__aexit__(None, None, None))


def _do(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(20)


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.01)
