"""What goes wrong behind the proxy, and the proxy's own end: a call has an answer, or an error that says what to do."""

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidegate_proxy.upstream.breaker import FAILURES
from tidegate_proxy.upstream.replica import Replica
from tritonclient.grpc import service_pb2 as pb

from .harness import HOST, SERVICE, Rig, infer_request, method, raw, rig, until
from .peer import DATA, HEADERS, Peer, frame, request


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, replicas=2) as running:
        yield running


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path) as running:
        yield running


def replicas(rig: Rig) -> list[Replica]:
    pools = rig.proxy.config.routes.pools.values()
    return next(pool for pool in pools if pool.server == "main").replicas


def replica_of(answer: Any) -> str:
    return str(answer.parameters["replica"].string_param)


class Faulty:
    """Listens where a replica did, and does this to each connection."""

    def __init__(self, host: str, port: int, what: Any) -> None:
        self._listener = socket.create_server((host, port))
        self.connections: list[socket.socket] = []
        self._what = what
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            with contextlib.suppress(OSError):
                self._what(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self.connections:
            each.close()


SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def headers(block: bytes, flags: int = 4) -> bytes:
    return len(block).to_bytes(3) + bytes((1, flags)) + b"\x00\x00\x00\x01" + block


def after_request(*frames: bytes, close: bool = True) -> Any:
    def do(connection: socket.socket) -> None:
        connection.sendall(SETTINGS)
        seen = b""
        while b"tensor" not in seen:
            seen += connection.recv(65536)
        connection.sendall(b"".join(frames))
        if close:
            connection.close()

    return do


def unavailable(rig: Rig, model: str = "echo") -> Any:
    with pytest.raises(grpc.RpcError) as error:
        method(rig.channel(), "ModelInfer")(infer_request(model), metadata=rig.metadata(), timeout=5)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    return error.value


def test_a_replica_that_refuses_is_passed_over_without_an_error(two: Rig) -> None:
    two.stubs[0].stop()
    call = method(two.channel(), "ModelInfer")
    for _ in range(30):
        assert replica_of(call(infer_request(), metadata=two.metadata(), timeout=5)) == "b"


def test_a_replica_that_stops_in_peace_loses_no_call(two: Rig) -> None:
    call = method(two.channel(), "ModelInfer")
    for _ in range(20):
        call(infer_request(), metadata=two.metadata())
    calls = [call.future(infer_request("slow"), metadata=two.metadata(), timeout=5) for _ in range(6)]
    until(lambda: sum(len(stub.asked) for stub in two.stubs) >= 26)
    stopping = threading.Thread(target=two.stubs[0].stop, args=(5,))
    stopping.start()
    # What is on its way when the replica says farewell, grpcio's server answers with CANCELLED: that is an answer.
    [lines] = [each for place, each in two.proxy.grpc.context.upstreams._replicas.items() if place is replicas(two)[0]]
    until(lambda: lines.take() is None)
    calls += [call.future(infer_request(), metadata=two.metadata(), timeout=5) for _ in range(20)]
    assert [each.details() for each in calls if each.code() != grpc.StatusCode.OK] == []
    stopping.join()


def test_without_any_replica_the_call_is_to_be_made_again(one: Rig) -> None:
    one.stubs[0].stop()
    assert "takes connections" in unavailable(one).details()
    assert one.proxy.meter.upstream_errors["main", "ConnectionRefusedError"] >= 1


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (after_request(), "ended the connection"),
        (after_request(headers(b"\x88")), "ended the connection"),
        (
            after_request(headers(b"\x88") + b"\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x09"),
            "ended the connection",
        ),
        (after_request(b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x02", close=False), "code 2"),
        (after_request(headers(b"\x8d"), close=False), "HTTP status 404"),
        (after_request(headers(b"\x88", 5), close=False), ""),
        (after_request(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=False), "ended the connection"),
        (after_request(headers(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), close=False), "ended the connection"),
        (after_request(headers(b"\x88") + b"\x00\x00\x00\x00\x01\x00\x00\x00\x01", close=False), "no status"),
    ],
)
def test_a_replica_that_answers_badly_is_told_of(one: Rig, what: Any, why: str) -> None:
    stub = one.stubs[0]
    stub.stop()
    faulty = Faulty(stub.host, stub.port, what)
    try:
        with pytest.raises(grpc.RpcError) as error:
            method(one.channel(), "ModelInfer")(infer_request(), metadata=one.metadata(), timeout=5)
        if why:
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
            assert why in (error.value.details() or "")
            assert "do" in (error.value.details() or "")
        else:
            assert error.value.code() == grpc.StatusCode.UNKNOWN
        until(lambda: not one.proxy.shared.open_calls and not one.proxy.shared.limiter.in_flight)
    finally:
        faulty.close()


RESET = b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x07"
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "what",
    [after_request(RESET, close=False), after_request(GOAWAY, close=False), socket.socket.close],
    ids=["refused", "nothing was begun", "cut before a word was said"],
)
def test_what_a_replica_did_not_begin_is_done_by_another(two: Rig, what: Any) -> None:
    stub = two.stubs[0]
    stub.stop()
    faulty = Faulty(stub.host, stub.port, what)
    try:
        call = method(two.channel(), "ModelInfer")
        while not faulty.connections:
            assert replica_of(call(infer_request(), metadata=two.metadata(), timeout=5)) == "b"
    finally:
        faulty.close()


def test_a_replica_that_dies_in_a_stream_ends_it_with_an_error(one: Rig) -> None:
    said: queue.Queue[Any] = queue.Queue()
    call = method(one.channel(), "ModelStreamInfer")(iter(said.get, None), metadata=one.metadata())
    said.put(infer_request())
    next(call)
    one.stubs[0].stop()
    with pytest.raises(grpc.RpcError) as error:
        next(call)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    said.put(None)


def test_callers_who_wait_no_longer_open_no_replicas_breaker(one: Rig) -> None:
    ask = method(one.channel(), "ServerMetadata")
    for _ in range(10):
        headers = request(
            ("authorization", f"Bearer {one.token()}"),
            ("inference-server", "main"),
            ("grpc-timeout", "1n"),
            path=f"/{SERVICE}/ServerMetadata",
        )
        peer = Peer(one).send(frame(HEADERS, 4, 1, headers), frame(DATA, 1, 1, bytes(5)))
        assert peer.headers()["grpc-status"] == "4"
    assert replicas(one)[0].breaker.state(one.loop.time()) == "closed"
    assert ask(pb.ServerMetadataRequest(), metadata=one.metadata(("inference-server", "main"))).name == "a"


def test_a_replica_that_hangs_is_left_alone_unless_callers_just_wait_no_longer(one: Rig) -> None:
    infer = method(one.channel(), "ModelInfer")
    breaker = replicas(one)[0].breaker
    for seconds, state in ((0.3, "closed"), (20.0, "open")):
        calls = [infer.future(infer_request("hang"), metadata=one.metadata(), timeout=seconds) for _ in range(FAILURES)]
        assert {call.code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        until(lambda: not one.proxy.shared.open_calls)
        assert breaker.state(one.loop.time()) == state
        one.stubs[0].release.set()
        one.stubs[0].release.clear()


def test_health_is_told_to_who_asks_and_to_who_watches(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        health: Any = health_pb2_grpc.HealthStub(one.channel())
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "inference.GRPCInferenceService"):
            assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == serving
        with pytest.raises(grpc.RpcError) as error:
            health.Check(health_pb2.HealthCheckRequest(service="nothing"))
        assert error.value.code() == grpc.StatusCode.NOT_FOUND
        listed = raw(one.channel(), "/grpc.health.v1.Health/List")(b"")
        assert listed.startswith(b"\x0a\x06\x0a\x00\x12\x02\x08\x01")
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == serving
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="nothing"))
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        unknown.cancel()
        stopping = threading.Thread(target=lambda: one.do(one.proxy.stop()))
        stopping.start()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        with pytest.raises(grpc.RpcError):
            next(watch)
        stopping.join()


def test_stopping_lets_calls_finish_and_ends_what_takes_too_long(tmp_path: Path) -> None:
    with rig(tmp_path, drain_seconds=3) as one:
        call = method(one.channel(), "ModelInfer")
        call(infer_request(), metadata=one.metadata())
        said: queue.Queue[Any] = queue.Queue()
        stream = method(one.channel(), "ModelStreamInfer")(iter(said.get, None), metadata=one.metadata())
        said.put(infer_request())
        next(stream)
        slow = [call.future(infer_request("slow"), metadata=one.metadata(), timeout=5) for _ in range(8)]
        until(lambda: len(one.proxy.shared.open_calls) == 9)
        stopping = threading.Thread(target=lambda: one.do(one.proxy.stop()))
        stopping.start()
        until(lambda: one.proxy.shared.draining)
        late = [
            method(one.channel(), "ModelInfer").future(infer_request(), metadata=one.metadata(), timeout=5)
            for _ in range(4)
        ]
        assert {each.code() for each in (*slow, *late)} == {grpc.StatusCode.OK}
        said.put(infer_request(id="still"))
        assert next(stream).infer_response.id == "still"
        with pytest.raises(grpc.RpcError) as error:
            next(stream)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "stopping" in (error.value.details() or "")
        stopping.join()
        assert not one.proxy.grpc.connections
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((HOST, one.port))
        said.put(None)
