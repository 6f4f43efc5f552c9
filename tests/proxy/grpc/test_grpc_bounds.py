import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest.mock import Mock

import hpack
import pytest
from tidegate_proxy.http2 import frames as h2
from tidegate_proxy.http2.connection import Http2Connection
from tidegate_proxy.http2.sending import Stream
from tidegate_proxy.settings import Tunables

from .harness import MODELS, RIG, Rig, infer_request, method, rig, until
from .peer import CALM, HEADERS, RESET, WINDOW, Peer, frame, request

MEMORY = 32 << 20
ENTRY = ("big", "x" * 4000)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("small")
    models = (*MODELS, "large")
    with rig(folder, 1, models, memory_bytes=MEMORY, concurrency=1000, request_timeout_seconds=20) as running:
        yield running


def held(running: Rig) -> int:
    memory, connections = running.proxy.shared.memory, running.proxy.grpc.connections
    return memory.strangers.held + memory.callers.held - sum(each.base_bytes for each in connections)


def test_a_call_without_a_credential_is_refused_before_its_message(running: Rig) -> None:
    for more in ((), (("x-api-key", "nonsense"),), (("authorization", "Bearer nonsense"),)):
        received = Peer(running).send(frame(HEADERS, 4, 1, request(*more))).headers()
        assert received["grpc-status"] == "16"
    running.until(lambda: held(running) == 0)


def test_headers_may_be_as_long_unpacked_as_is_documented(running: Rig) -> None:
    for number, ended in ((7, False), (9, True)):
        peer, encoder = Peer(running), hpack.Encoder()
        first = request(ENTRY, encoder=encoder)
        peer.send(frame(HEADERS, 5, 1, first), frame(HEADERS, 5, 3, request(*[ENTRY] * number, encoder=encoder)))
        if ended:
            assert peer.farewell() == CALM
        else:
            assert [peer.headers()["grpc-status"] for _ in range(2)] == ["16", "16"]


def test_streams_of_unauthenticated_callers_have_a_limited_share_of_memory(small: Rig) -> None:
    peer, encoder = Peer(small), hpack.Encoder()
    check = request(*[ENTRY] * 6, path="/grpc.health.v1.Health/Check", encoder=encoder)
    again = request(*[ENTRY] * 6, path="/grpc.health.v1.Health/Check", encoder=encoder)
    # One at a time: unread data counts too, and would end the connection.
    for number in range(1, 41, 2):
        peer.send(frame(HEADERS, 4, number, again if number > 1 else check))
        received = peer.headers_before_ping()
        if "grpc-status" in received:
            break
    assert (received["grpc-status"], "buffer limit" in received["grpc-message"]) == ("8", True)
    assert held(small) <= small.proxy.shared.memory.strangers.most
    assert method(small.channel(), "ModelInfer")(infer_request(), metadata=small.metadata(), timeout=5)
    peer.sock.close()
    small.close()
    small.until(lambda: not small.proxy.grpc.connections)
    assert held(small) == 0


@pytest.mark.parametrize("tunables", [replace(RIG, control_frames=3)])
def test_the_call_whose_cancelling_ends_its_connection_ends_too(one: Rig) -> None:
    peer, shared = Peer(one), one.proxy.shared
    for number in range(1, 9, 2):
        opened = frame(HEADERS, 4, number, request(("authorization", f"Bearer {one.token()}")))
        peer.send(opened + frame(RESET, 0, number, b"\0\0\0\x08"))
    one.until(lambda: shared.memory.cut["chatter"] == 1 and not one.proxy.grpc.connections)
    assert not shared.open_calls
    assert shared.memory.callers.held == 0


class Sending(Http2Connection[None]):
    def __init__(self) -> None:
        super().__init__(lambda _: None, {}, b"")

    def stream_opened(self, number: int, _head: None, _end: bool) -> None:
        self.add(Stream(), number)
        self.send_data(self.streams[number], b"data")


@pytest.mark.parametrize(("more", "ended"), [(0, False), (1, True)])
def test_window_updates_beyond_the_sent_data_count_as_control_frames(more: int, ended: bool) -> None:
    async def run() -> bool:
        link = Sending()
        link.connection_made(Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=None)))
        link.data_received(frame(h2.SETTINGS) + b"".join(frame(HEADERS, 4, n, request()) for n in range(1, 41, 2)))
        number = 20 * h2.UPDATES_OF_DATA + Tunables.control_frames - 1 + more  # the settings count as one frame
        link.data_received(frame(WINDOW, 0, 0, struct.pack(">L", 1)) * number)
        await asyncio.sleep(0)
        return link.is_ending

    assert asyncio.run(run()) is ended


def test_large_bodies_of_several_callers_are_read_in_turn(one: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(one.proxy.shared.bulk_reads, "add", lambda _, step: waiting.append(step))
    infer = method(one.channel(), "ModelInfer")
    infer(infer_request(), metadata=one.metadata(), timeout=5)  # authenticates the caller
    large = infer.future(infer_request(data=bytes(4_000_000)), metadata=one.metadata(), timeout=20)
    until(lambda: bool(waiting))
    for _ in range(20):
        assert method(one.channel(), "ModelInfer")(infer_request(), metadata=one.metadata(), timeout=5), "others go on"
    assert (len(waiting), large.done()) == (1, False), "meanwhile nothing more is read before its turn"
    while not large.done():
        if waiting:
            one.on_loop(waiting.pop())
        time.sleep(0.001)
    assert len(large.result().raw_output_contents[0]) == 4_000_000
