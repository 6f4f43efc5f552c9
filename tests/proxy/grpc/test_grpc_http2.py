"""HTTP/2 as attackers and unusual clients speak it: hand-written frames on a socket."""

import asyncio
import socket
import struct
from typing import Any, cast
from unittest.mock import Mock

import hpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate_proxy.http2.connection import Http2Connection
from tidegate_proxy.http2.frames import PREFACE
from tidegate_proxy.http2.sending import Stream

from .harness import Rig, infer_request, method
from .peer import (
    CALM,
    CLOSED,
    COMPRESSION,
    CONTINUATION,
    DATA,
    FLOW,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    PROTOCOL,
    PUSH,
    REFUSED,
    RESET,
    SETTINGS,
    SIZE,
    WINDOW,
    Peer,
    frame,
    request,
)

BIG = b"\x00" * 70_000
WINDOW_1 = struct.pack(">L", 1)
OPENED = request(path="/grpc.health.v1.Health/Check")  # It waits for its message.
UPPER = request(("Upper", "x"))  # A name with a capital is malformed.
BROKEN: list[Any] = [
    (PROTOCOL, [frame(DATA, 0, 1, b"x")]),
    (PROTOCOL, [frame(DATA, 0, 0, b"x")]),
    (PROTOCOL, [frame(HEADERS, 5, 2, request())]),
    (PROTOCOL, [frame(HEADERS, 5, 0, request())]),
    (PROTOCOL, [frame(HEADERS, 1, 1, request()), frame(PING, 0, 0, b"12345678")]),
    (PROTOCOL, [frame(HEADERS, 1, 1, request()), frame(CONTINUATION, 4, 3, b"")]),
    (PROTOCOL, [frame(CONTINUATION, 4, 1, b"")]),
    (PROTOCOL, [frame(PUSH, 4, 1, b"\0\0\0\2" + request())]),
    (PROTOCOL, [frame(RESET, 0, 1, b"\0\0\0\0")]),
    (PROTOCOL, [frame(PING, 0, 1, b"12345678")]),
    (PROTOCOL, [frame(SETTINGS, 0, 1)]),
    (PROTOCOL, [frame(SETTINGS, 0, 0, struct.pack(">HL", 2, 7))]),
    (PROTOCOL, [frame(SETTINGS, 0, 0, struct.pack(">HL", 5, 1))]),
    (PROTOCOL, [frame(WINDOW, 0, 0, b"\0\0\0\0")]),
    (PROTOCOL, [frame(WINDOW, 0, 9, WINDOW_1)]),
    (PROTOCOL, [frame(HEADERS, 4, 1, request()), frame(DATA, 8, 1, b"\xff1")]),
    (FLOW, [frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 1 << 31))]),
    (FLOW, [frame(WINDOW, 0, 0, struct.pack(">L", (1 << 31) - 1))]),
    (PROTOCOL, [frame(PRIORITY, 0, 0, b"12345")]),
    (CLOSED, [frame(HEADERS, 5, 1, request()), frame(HEADERS, 5, 1, request())]),
    (CLOSED, [frame(HEADERS, 5, 1, request(path="/none")), frame(HEADERS, 5, 1, request(path="/none"))]),
    (SIZE, [frame(PING, 0, 0, b"1")]),
    (SIZE, [frame(SETTINGS, 0, 0, b"1")]),
    (SIZE, [frame(WINDOW, 0, 0, b"1")]),
    (SIZE, [frame(PRIORITY, 0, 1, b"1")]),
    (SIZE, [frame(RESET, 0, 1, b"1")]),
    (CLOSED, [frame(HEADERS, 5, 1, request(path="/none")), frame(HEADERS, 5, 1, UPPER)]),
    (SIZE, [frame(SETTINGS, 1, 0, b"123456")]),
    (SIZE, [frame(HEADERS, 0x24, 1, b"1234")]),
    (SIZE, [frame(HEADERS, 4, 1, BIG)]),
    (SIZE, [b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"]),
    (COMPRESSION, [frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff")]),
    (COMPRESSION, [frame(HEADERS, 5, 1, b"\xfe")]),
    (CLOSED, [frame(HEADERS, 5, 1, OPENED), frame(DATA, 0, 1, b"x")]),
    (CALM, [frame(HEADERS, 1, 1, request()), *(frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 1000) for _ in range(40))]),
    (CALM, [frame(HEADERS, 1, 1, request()), *(frame(CONTINUATION, 0, 1) for _ in range(40))]),
    (CALM, [frame(PING, 0, 0, b"12345678") * 10_001]),
    (CALM, [frame(SETTINGS) * 10_001]),
    (CALM, [b"".join(frame(HEADERS, 4, n, OPENED) + frame(RESET, 0, n, b"\0\0\0\x08") for n in range(1, 20_004, 2))]),
    (CALM, [b"".join(frame(HEADERS, 4, n, OPENED) + frame(HEADERS, 5, n, UPPER) for n in range(1, 20_004, 2))]),
    (CALM, [frame(HEADERS, 4, 1, request()), frame(DATA, 0, 1) * 10_100]),
    (CALM, [frame(HEADERS, 4, 1, request()), frame(DATA, 8, 1, b"\0") * 10_100]),
    (CALM, [frame(HEADERS, 5, 1, request(path="/none")), frame(DATA, 1, 1) * 10_100]),
]


@pytest.mark.parametrize(("code", "frames"), BROKEN)
def test_a_connection_that_violates_the_protocol_gets_a_goaway_and_is_closed(
    running: Rig, code: int, frames: list[bytes]
) -> None:
    peer = Peer(running).send(*frames)
    assert peer.farewell() == code
    for _ in peer.frames():
        pass  # until the connection is closed
    running.until(lambda: not running.proxy.shared.open_calls)
    assert method(running.channel(), "ModelInfer")(infer_request(), metadata=running.metadata(), timeout=5)


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n\r\n", PREFACE[:-1] + b"x", PREFACE + frame(PING, 0, 0, b"12345678")]
)
def test_a_connection_without_the_http2_preface_is_closed(running: Rig, hello: bytes) -> None:
    assert Peer(running, hello).farewell() == PROTOCOL


def test_headers_that_unfold_without_end_are_refused(running: Rig) -> None:
    encoder = hpack.Encoder()
    block = bytes(encoder.encode([("big", "x" * 4000)]))
    again = bytes(encoder.encode([("big", "x" * 4000)] * 100))
    assert Peer(running).send(frame(HEADERS, 5, 1, block), frame(HEADERS, 5, 3, again)).farewell() == CALM


CHECK = "/grpc.health.v1.Health/Check"
EMPTY = b"\0\0\0\0\0"  # A message without fields.
TRAILERS = bytes(hpack.Encoder().encode([("x-checksum", "1"), ("grpc-foo", "2")]))


def test_trailers_end_a_request(running: Rig) -> None:
    """RFC 9113, 8.1. Some clients send trailers, which the proxy ignores."""
    block = request(("content-length", "5"), path=CHECK)
    peer = Peer(running).send(frame(HEADERS, 4, 1, block), frame(DATA, 0, 1, EMPTY), frame(HEADERS, 5, 1, TRAILERS))
    assert peer.headers()[":status"] == "200"
    assert peer.headers()["grpc-status"] == "0"
    assert peer.is_up()


def test_trailers_of_a_call_that_was_refused_end_nothing_else(running: Rig) -> None:
    peer = Peer(running).send(frame(HEADERS, 4, 1, request(path="/none")))
    peer.next(RESET)
    assert peer.send(frame(DATA, 0, 1, EMPTY), frame(HEADERS, 5, 1, TRAILERS)).is_up()


@pytest.mark.parametrize(
    "frames",
    [
        [frame(HEADERS, 4, 1, UPPER)],
        [frame(HEADERS, 4, 1, request(("connection", "close")))],
        [frame(HEADERS, 4, 1, request(("transfer-encoding", "chunked")))],
        [frame(HEADERS, 4, 1, request(("a", "b\r\nc: d")))],
        [frame(HEADERS, 4, 1, request(("a", "b\0")))],
        [frame(HEADERS, 4, 1, request(("a b", "c")))],
        [frame(HEADERS, 4, 1, request(("grpc-timeout", "-1S")))],
        [frame(HEADERS, 4, 1, request(("grpc-timeout", "1")))],
        [frame(HEADERS, 4, 1, request((":path", "/again")))],
        [frame(HEADERS, 4, 1, request((":late", "x")))],
        [frame(HEADERS, 4, 1, request(("te", "gzip"), without="te"))],
        [frame(HEADERS, 4, 1, request((":scheme", "http")))],
        [frame(HEADERS, 4, 1, request(without=":scheme"))],
        [frame(HEADERS, 4, 1, request(without=":path"))],
        [frame(HEADERS, 4, 1, request(without=":method"))],
        [frame(HEADERS, 4, 1, request(path=CHECK)), frame(HEADERS, 4, 1, TRAILERS)],
        [frame(HEADERS, 4, 1, request(path=CHECK)), frame(HEADERS, 5, 1, request(path=CHECK))],
        [frame(HEADERS, 5, 1, TRAILERS)],
        [frame(HEADERS, 4, 1, request(("content-length", "4"), path=CHECK)), frame(DATA, 1, 1, EMPTY)],
        [frame(HEADERS, 4, 1, request(("content-length", "6"), path=CHECK)), frame(DATA, 1, 1, EMPTY)],
        [
            frame(HEADERS, 4, 1, request(("content-length", "6"), path=CHECK)),
            frame(DATA, 0, 1, EMPTY),
            frame(HEADERS, 5, 1, TRAILERS),
        ],
        [frame(HEADERS, 5, 1, request(("content-length", "5"), path=CHECK))],
        [frame(HEADERS, 4, 1, request(("content-length", "5"), ("content-length", "6"), path=CHECK))],
        [frame(HEADERS, 4, 1, request(("content-length", "five"), path=CHECK))],
        [frame(HEADERS, 4, 1, request(("content-length", "-5"), path=CHECK))],
        [frame(HEADERS, 4, 1, request(("content-length", "9" * 5000), path=CHECK))],
    ],
)
def test_a_request_that_is_malformed_ends_its_stream_alone(running: Rig, frames: list[bytes]) -> None:
    peer = Peer(running).send(*frames)
    _, _, stream, payload = peer.next(RESET)
    assert (stream, int.from_bytes(payload)) == (1, PROTOCOL)
    assert peer.is_up()


def test_requests_other_than_grpc_get_an_http_status(running: Rig) -> None:
    for block, status in (
        (request(without="content-type"), "415"),
        (request(("content-type", "application/json"), without="content-type"), "415"),
        (request(method="GET"), "405"),
    ):
        assert Peer(running).send(frame(HEADERS, 5, 1, block)).headers()[":status"] == status


@pytest.mark.parametrize("flags", [4, 5], ids=["a message follows", "no message"])
@pytest.mark.parametrize("encoding", ["gzip", "snappy"])
def test_a_compressed_call_is_refused_with_the_accepted_encodings(running: Rig, flags: int, encoding: str) -> None:
    """gRPC's doc/compression.md: UNIMPLEMENTED, and the supported encodings."""
    answer = Peer(running).send(frame(HEADERS, flags, 1, request(("grpc-encoding", encoding)))).headers()
    assert (answer["grpc-status"], answer["grpc-accept-encoding"]) == ("12", "identity")


def test_more_calls_at_once_than_announced_are_refused_one_by_one(running: Rig) -> None:
    path = "/grpc.health.v1.Health/Check"
    peer = Peer(running).send(*(frame(HEADERS, 4, 2 * n + 1, request(path=path)) for n in range(300)))
    _, _, stream, payload = peer.next(RESET)
    assert (stream, int.from_bytes(payload)) == (2 * 256 + 1, REFUSED)
    assert peer.is_up()
    peer.sock.close()
    running.until(lambda: not running.proxy.shared.open_calls)


def health(flags: int = 1, pad: int | None = None) -> bytes:
    data = b"\0\0\0\0\0"
    return frame(DATA, flags, 1, data) if pad is None else frame(DATA, flags | 8, 1, bytes((pad,)) + data + b"\0" * pad)


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_padding_priorities_and_any_cut_of_the_bytes_change_nothing(running: Rig, size: int) -> None:
    block = request(path="/grpc.health.v1.Health/Check")
    padded = b"\x05" + b"\x80\0\0\0\x10" + block[:10]
    frames = [
        frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), frame(0x20, 0, 0, b"unknown"),
        frame(HEADERS, 0x28, 1, padded + b"\0" * 5),
        frame(CONTINUATION, 0, 1, block[10:20]), frame(CONTINUATION, 4, 1, block[20:]), health(pad=9),
    ]  # fmt: skip
    peer = Peer(running, b"")
    data = PREFACE + frame(SETTINGS) + b"".join(frames)
    for at in range(0, len(data), size):
        peer.send(data[at : at + size])
    assert peer.next(DATA)[3] == b"\0\0\0\0\x02\x08\x01"


def test_a_tiny_window_is_respected(running: Rig) -> None:
    hello = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 3))
    peer = Peer(running, hello).send(frame(HEADERS, 4, 1, request(path="/grpc.health.v1.Health/Check")), health())
    got = peer.next(DATA)[3]
    assert got == b"\0\0\0"
    peer.send(frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0)))
    assert peer.is_up()
    for _ in range(7):
        peer.send(frame(WINDOW, 0, 1, WINDOW_1))
    while len(got) < 7:
        part = peer.next(DATA)[3]
        assert len(part) <= 4
        got += part
    assert got == b"\0\0\0\0\x02\x08\x01"
    assert peer.headers()["grpc-status"] == "0"


def test_a_callers_goaway_ends_no_call_in_flight(running: Rig) -> None:
    peer = Peer(running).send(frame(HEADERS, 4, 1, request(path="/grpc.health.v1.Health/Check")))
    peer.send(frame(GOAWAY, 0, 0, b"\0" * 8), health())
    assert peer.next(DATA)[3] == b"\0\0\0\0\x02\x08\x01"


content = st.binary(max_size=40) | st.sampled_from([request(), b"\0\0\0\0\5hello", WINDOW_1, b"\0" * 8])
any_frame = st.builds(frame, st.integers(0, 10), st.integers(0, 255), st.integers(0, 7), content)


@given(st.lists(any_frame, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_frames_affect_no_other_caller(running: Rig, frames: list[bytes]) -> None:
    peer = Peer(running).send(*frames)
    peer.sock.shutdown(socket.SHUT_WR)
    for _ in peer.frames():
        pass
    peer.sock.close()
    running.until(lambda: not running.proxy.shared.open_calls and not running.proxy.shared.limiter.in_flight)


def transport() -> Mock:
    return Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=None))


def written(link: Http2Connection[None]) -> bytes:
    writes: Any = link.transport.write
    return b"".join(call.args[0] for call in writes.call_args_list)


class Hoarder(Http2Connection[None]):
    def __init__(self) -> None:
        super().__init__(lambda _: None, {}, b"")

    def stream_opened(self, number: int, _head: None, _end: bool) -> None:
        self.add(Stream(), number)


class Laborious(Hoarder):
    """Answers every stream immediately, and counts the work that window updates cause."""

    work = 0

    def stream_opened(self, number: int, _head: None, _end: bool) -> None:
        self.add(Worked(), number)
        self.send_data(self.streams[number], b"answer", True)

    def _send_some(self, stream: Stream) -> bool:
        self.work += 1
        return super()._send_some(stream)


class Worked(Stream):
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "send_window" and "connection" in self.__dict__:
            cast(Laborious, self.connection).work += 1
        super().__setattr__(name, value)


def window(size: int) -> bytes:
    return struct.pack(">HL", 4, size)


@pytest.mark.parametrize(
    "updates",
    [
        frame(WINDOW, 0, 0, WINDOW_1) * 2000,
        frame(WINDOW, 0, 1, WINDOW_1) + frame(WINDOW, 0, 3, WINDOW_1) * 3,
        frame(SETTINGS, 0, 0, (window(9) + window(0)) * 1000),
        frame(SETTINGS, 0, 0, window(0)) * 500,
    ],
    ids=["of the connection", "of single streams", "in one frame of settings", "in many frames of settings"],
)
def test_small_updates_of_windows_make_little_work(updates: bytes) -> None:
    """Each costs its sender a few bytes, but could cost the proxy a pass over every stream: one pass serves all."""

    async def run() -> tuple[int, bytes]:
        link = Laborious()
        link.connection_made(transport())
        opened = b"".join(frame(HEADERS, 5, number, request()) for number in range(1, 201, 2))
        link.data_received(frame(SETTINGS, 0, 0, window(0)) + opened)
        link.work = 0
        link.data_received(updates)
        work = link.work
        link.data_received(frame(SETTINGS, 0, 0, window(6)))
        await asyncio.sleep(0)
        return work, written(link)

    work, received = asyncio.run(run())
    assert work <= 400
    assert received.count(b"answer") >= 98, "all waiting data was sent"


@pytest.mark.parametrize(("pieces", "code"), [([65_535], None), ([65_535, 1], FLOW), ([30_000, 30_000, 5_536], FLOW)])
def test_data_beyond_the_window_ends_the_connection(pieces: list[int], code: int | None) -> None:
    async def run() -> bytes:
        link = Hoarder()
        link.connection_made(transport())
        link.data_received(frame(SETTINGS) + frame(HEADERS, 4, 1, request()))
        for piece in pieces:
            link.data_received(frame(DATA, 0, 1, b"x" * piece))
        await asyncio.sleep(0)
        return written(link)

    goaway = frame(GOAWAY, 0, 0, struct.pack(">LL", 1, code or 0))[3:17]
    assert (goaway in asyncio.run(run())) == (code is not None)
