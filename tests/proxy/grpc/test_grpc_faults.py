import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tidegate_proxy.grpc.upstream_stream import UpstreamStream
from tidegate_proxy.grpc.upstreams import LANES
from tidegate_proxy.http2.frames import INITIAL_WINDOW_SIZE, PREFACE
from tidegate_proxy.upstream.breaker import FAILURES, SILENT
from tidegate_proxy.upstream.replica import Replica
from tritonclient.grpc import service_pb2 as pb

from .harness import HOST, RIG, Rig, Stub, Talk, infer_request, method, refused, replica_of, rig, until
from .peer import DATA, GOAWAY, HEADERS, RESET, SETTINGS, Peer, frame, request


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, replicas=2) as running:
        yield running


def replicas(rig: Rig) -> list[Replica]:
    pools = rig.proxy.config.routes.pools.values()
    return next(pool for pool in pools if pool.server == "main").replicas


@contextlib.contextmanager
def faulty(stub: Stub, what: Any) -> Iterator[list[socket.socket]]:
    """Replace a replica by a socket that does this with each connection. Yield the connections."""
    stub.stop()
    connections: list[socket.socket] = []
    with socket.create_server((stub.host, stub.port)) as listener:

        def run() -> None:
            while True:
                try:
                    connections.append(listener.accept()[0])
                except OSError:
                    return
                with contextlib.suppress(OSError):
                    what(connections[-1])

        threading.Thread(target=run, daemon=True).start()
        yield connections
        listener.shutdown(socket.SHUT_RDWR)
    for each in connections:
        each.close()


OK = b"\x88"


def after_request(*frames: bytes, close: bool = True) -> Any:
    def do(connection: socket.socket) -> None:
        connection.sendall(frame(SETTINGS))
        seen = b""
        while b"tensor" not in seen:
            seen += connection.recv(65536)
        connection.sendall(b"".join(frames))
        if close:
            connection.close()

    return do


def test_a_replica_that_refuses_is_passed_over_without_an_error(two: Rig) -> None:
    two.stubs[0].stop()
    call = method(two.channel(), "ModelInfer")
    for _ in range(30):
        assert replica_of(call(infer_request(), metadata=two.metadata(), timeout=5)) == "b"


def test_a_replica_that_stops_gracefully_loses_no_call(two: Rig) -> None:
    call = method(two.channel(), "ModelInfer")
    for _ in range(20):
        call(infer_request(), metadata=two.metadata())
    calls = [call.future(infer_request("slow"), metadata=two.metadata(), timeout=5) for _ in range(6)]
    until(lambda: sum(len(stub.requests) for stub in two.stubs) >= 26)
    stopping = threading.Thread(target=two.stubs[0].stop, args=(5,))
    stopping.start()
    # When a server of grpcio stops, it answers calls in flight with CANCELLED, which is a response.
    [lines] = [each for place, each in two.proxy.grpc.context.upstreams._replicas.items() if place is replicas(two)[0]]
    two.until(lambda: not any(map(lines.take, range(LANES))))
    calls += [call.future(infer_request(), metadata=two.metadata(), timeout=5) for _ in range(20)]
    assert [each.details() for each in calls if each.code() != grpc.StatusCode.OK] == []
    stopping.join()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (after_request(), "closed the connection"),
        (after_request(frame(HEADERS, 4, 1, OK)), "closed the connection"),
        (after_request(frame(HEADERS, 4, 1, OK), frame(DATA, 0, 1, b"\0\0\0\0\x09")), "closed the connection"),
        (after_request(frame(RESET, 0, 1, b"\0\0\0\2"), close=False), "code 2"),
        (after_request(frame(HEADERS, 4, 1, b"\x8d"), close=False), "HTTP status 404"),
        (after_request(frame(HEADERS, 5, 1, OK), close=False), ""),
        (after_request(b"HTTP/1.1 400 Bad Request\r\n\r\n", close=False), "closed the connection"),
        (after_request(frame(HEADERS, 4, 1, b"\xff" * 10), close=False), "closed the connection"),
        (after_request(frame(HEADERS, 4, 1, OK), frame(DATA, 1, 1), close=False), "no status"),
    ],
)
def test_an_invalid_response_of_a_replica_is_reported(one: Rig, what: Any, why: str) -> None:
    with faulty(one.stubs[0], what):
        error = refused(method(one.channel(), "ModelInfer"), infer_request(), one.metadata())
        if why:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            assert why in error.details()
            assert "Send the request again only if" in error.details()
        else:
            assert error.code() == grpc.StatusCode.UNKNOWN
        one.until(lambda: not one.proxy.shared.open_calls and not one.proxy.shared.limiter.in_flight)


@pytest.mark.parametrize(
    "what",
    [
        after_request(frame(RESET, 0, 1, b"\0\0\0\7"), close=False),
        after_request(frame(GOAWAY, 0, 0, bytes(8)), close=False),
        socket.socket.close,
    ],
    ids=["refused", "nothing was begun", "cut before any data"],
)
def test_a_call_that_a_replica_did_not_begin_is_sent_to_another(two: Rig, what: Any) -> None:
    with faulty(two.stubs[0], what) as connections:
        call = method(two.channel(), "ModelInfer")
        while not connections:
            assert replica_of(call(infer_request(), metadata=two.metadata(), timeout=5)) == "b"


def test_a_replica_that_dies_in_a_stream_ends_it_with_an_error(one: Rig) -> None:
    talk = Talk(one)
    talk.exchange()
    one.stubs[0].stop()
    assert talk.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    talk.end()


def test_a_call_that_waited_for_its_slot_and_finds_no_replica_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with rig(tmp_path, request_timeout_seconds=20, concurrency=1) as one:
        infer, shared, [replica] = method(one.channel(), "ModelInfer"), one.proxy.shared, replicas(one)
        before = infer.future(infer_request("hang"), metadata=one.metadata(), timeout=10)
        until(lambda: bool(one.stubs[0].requests))
        waiting = infer.future(infer_request(), metadata=one.metadata(), timeout=10)
        one.until(lambda: shared.limiter.waiting == 1)
        for _ in range(FAILURES):
            one.on_loop(lambda: replica.breaker.failed(monotonic()))
        one.stubs[0].release.set()
        assert before.result().model_name == "hang"
        assert waiting.code() == grpc.StatusCode.UNAVAILABLE
        one.until(lambda: not shared.open_calls)
        assert (shared.limiter.in_flight, shared.limiter.waiting, replica.in_flight) == (0, 0, 0)
        assert len(one.stubs[0].requests) == 1
        one.close()
        one.until(lambda: shared.memory.callers.held == 0)


@pytest.mark.parametrize("tunables", [replace(RIG, check_seconds=60)])  # a late check would close it again
def test_a_replica_that_hangs_is_left_alone_unless_callers_just_wait_no_longer(one: Rig) -> None:
    infer = method(one.channel(), "ModelInfer")
    breaker = replicas(one)[0].breaker
    for seconds, state in ((0.3, "closed"), (20.0, "open")):
        calls = [infer.future(infer_request("hang"), metadata=one.metadata(), timeout=seconds) for _ in range(FAILURES)]
        assert {call.code() for call in calls} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        one.until(lambda: not one.proxy.shared.open_calls)
        assert breaker.state(one.loop.time()) == state
        one.stubs[0].release.set()
        one.stubs[0].release.clear()


@pytest.mark.parametrize("status", [0, 4, 13])
def test_an_abandoned_call_that_ends_at_its_deadline_does_not_close_the_circuit_breaker(status: int) -> None:
    forwarding = Mock()
    abandoned = UpstreamStream(Mock(done=True), forwarding, False, Mock(), Mock())
    abandoned.headers_received(Mock(grpc_status=status), end=True)
    assert forwarding.answered.called == (status != 4)


def fall_silent(rig: Rig, replica: Replica) -> None:
    pools = rig.proxy.config.routes.pools.values()
    pool = next(pool for pool in pools if replica in pool.replicas)

    def found() -> None:
        for _ in range(SILENT):
            replica.breaker.unanswered(rig.loop.time(), "there is no answer")
        pool._changed(replica)

    rig.on_loop(found)


@pytest.mark.parametrize("number", [1, 2])
def test_a_read_only_call_is_retried_elsewhere_or_refused_if_its_replica_falls_silent(
    tmp_path: Path, number: int
) -> None:
    with rig(tmp_path, number) as here:
        here.stubs[0].hangs = True
        ready, message = method(here.channel(), "ModelReady"), pb.ModelReadyRequest(name="echo")
        calls = [ready.future(message, metadata=here.metadata(), timeout=5) for _ in range(20)]
        until(lambda: len(here.stubs[0].requests) > 0)
        here.until(lambda: sum(each.done() for each in calls) + len(here.proxy.shared.open_calls) == len(calls))
        fall_silent(here, replicas(here)[0])
        if number == 1:
            assert {each.code() for each in calls} == {grpc.StatusCode.UNAVAILABLE}
            assert all("can be used: there is no answer" in each.details() for each in calls)
        else:
            assert [each.result().ready for each in calls] == [True] * len(calls)


def test_a_call_whose_response_is_not_read_releases_its_slot_once(one: Rig) -> None:
    nothing = struct.pack(">HL", INITIAL_WINDOW_SIZE, 0)  # of the response's body
    headers, message = request(("authorization", f"Bearer {one.token()}")), infer_request().SerializeToString()
    data = b"\0" + len(message).to_bytes(4) + message
    peer = Peer(one, PREFACE + frame(SETTINGS, 0, 0, nothing))
    peer.send(frame(HEADERS, 4, 1, headers), frame(DATA, 1, 1, data))
    shared = one.proxy.shared
    one.until(lambda: any(call.forwarding and call.done for call in shared.open_calls))  # type: ignore[attr-defined]
    fall_silent(one, replicas(one)[0])
    assert (len(shared.open_calls), shared.limiter.in_flight) == (1, 0)
    peer.sock.close()


def test_health_is_checked_and_not_watched(tmp_path: Path) -> None:
    with rig(tmp_path) as one:
        health: Any = health_pb2_grpc.HealthStub(one.channel())
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "inference.GRPCInferenceService"):
            assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == serving
        error = refused(health.Check, health_pb2.HealthCheckRequest(service="nothing"))
        assert error.code() == grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as unimplemented:
            next(health.Watch(health_pb2.HealthCheckRequest()))
        # Clients then assume that the proxy is healthy.
        assert unimplemented.value.code() == grpc.StatusCode.UNIMPLEMENTED
        one.on_loop(lambda: setattr(one.proxy.shared, "draining", True))
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_stopping_lets_calls_finish_and_ends_slow_ones(tmp_path: Path) -> None:
    with rig(tmp_path, drain_seconds=3) as one:
        call = method(one.channel(), "ModelInfer")
        call(infer_request(), metadata=one.metadata())
        talk = Talk(one)
        talk.exchange()
        slow = [call.future(infer_request("hang"), metadata=one.metadata(), timeout=5) for _ in range(8)]
        one.until(lambda: len(one.proxy.shared.open_calls) == 9)
        stopping = threading.Thread(target=lambda: one.do(one.proxy.stop()))
        one.proxy.shared.tunables = replace(RIG, quiet_seconds=60.0)  # longer than any late call
        stopping.start()
        one.until(lambda: one.proxy.shared.draining)
        late = [
            method(one.channel(), "ModelInfer").future(infer_request(), metadata=one.metadata(), timeout=5)
            for _ in range(4)
        ]
        assert {each.code() for each in late} == {grpc.StatusCode.OK}
        one.proxy.shared.tunables = RIG
        one.stubs[0].release.set()
        assert {each.code() for each in slow} == {grpc.StatusCode.OK}
        assert talk.exchange(id="still").id == "still"
        assert talk.code() == grpc.StatusCode.UNAVAILABLE
        assert "stopping" in talk.call.details()
        stopping.join()
        assert not one.proxy.grpc.connections
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((HOST, one.port))
        talk.end()
