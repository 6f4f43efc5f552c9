import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import grpc
import pytest
from tidegate_proxy.grpc.metadata import MOST_MESSAGE_BYTES, ResponseHeaders
from tidegate_proxy.grpc.upstreams import UpstreamConnection
from tidegate_proxy.http2 import frames as h2
from tidegate_proxy.http2.frames import encode_header
from tidegate_proxy.http2.sending import Stream
from tidegate_proxy.settings import Tunables

from .harness import Rig, infer_request, method, refused, rig, until
from .peer import (
    CALM,
    CANCEL,
    DATA,
    GOAWAY,
    HEADERS,
    PING,
    PRIORITY,
    REFUSED,
    RESET,
    SETTINGS,
    WINDOW,
    Peer,
    frame,
    request,
)

MANY = 2 * Tunables.control_frames


async def link() -> tuple[UpstreamConnection, Mock]:
    made, transport = UpstreamConnection(), Mock(spec=asyncio.Transport, get_extra_info=Mock(return_value=Mock()))
    made.connection_made(transport)
    made.data_received(frame(SETTINGS))
    return made, transport


LATE = {
    "resets without an error": lambda number: frame(RESET, 0, number, h2.UINT32.pack(h2.NO_ERROR)),
    "resets that cancel": lambda number: frame(RESET, 0, number, h2.UINT32.pack(CANCEL)),
    "resets that refuse": lambda number: frame(RESET, 0, number, h2.UINT32.pack(REFUSED)),
    "updates of a window": lambda number: frame(WINDOW, 0, number, h2.UINT32.pack(1)),
    "empty data": lambda number: frame(DATA, 0, number),
    "priorities": lambda number: frame(PRIORITY, 0, number, bytes(5)),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("is_cancelled", [True, False])
def test_frames_of_calls_that_the_proxy_has_reset_do_not_end_the_link(
    is_cancelled: bool, times: int, late: Callable[[int], bytes]
) -> None:
    """Triton sends six resets for each. If a replica resets a call itself, only the first frame concerns the call."""

    async def run() -> bool:
        made, _ = await link()
        for _ in range(MANY):
            stream = Stream()
            made.open(stream, b"")
            if is_cancelled:
                made.reset(stream.number, CANCEL)
        for number in range(1, 2 * MANY, 2):
            first = b"" if is_cancelled else LATE["resets that cancel"](number)
            made.data_received(first + late(number) * times)
        return not made.is_ending and not made.streams

    assert asyncio.run(run())


@pytest.mark.parametrize("chatter", [frame(PING, 0, 0, b"12345678"), frame(SETTINGS), frame(DATA, 0, 3)])
def test_frames_that_no_call_explains_end_the_link_of_a_replica(chatter: bytes) -> None:
    async def run() -> bytes:
        made, transport = await link()
        stream = Stream()
        made.open(stream, b"")
        made.reset(stream.number, CANCEL)
        made.open(Stream(), b"")
        made.data_received(chatter * (Tunables.control_frames + 2))
        await asyncio.sleep(0)
        return b"".join(bytes(each.args[0]) for each in transport.write.call_args_list)

    goaway = frame(GOAWAY, 0, 0, h2.UINT32.pack(3) + h2.UINT32.pack(CALM))[3:]
    assert goaway in asyncio.run(run())


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Rig]:
    with rig(tmp_path, models=("hang", "wordy", "echo"), request_timeout_seconds=30) as running:
        yield running


@pytest.fixture
def waiting(patient: Rig) -> Iterator[None]:
    """Keep another caller's call in flight on the same connection during the test."""
    call = method(patient.channel(), "ModelInfer")
    made = call.future(infer_request("hang"), metadata=patient.metadata(), timeout=20)
    until(lambda: len(patient.stubs[0].requests) == 1)
    yield
    patient.stubs[0].release.set()
    assert made.result().model_name == "hang"


@pytest.mark.parametrize("size", [7_000, 100_000, h2.MOST_ANSWER_HEAD_BYTES - 1000, 4_000_000])
@pytest.mark.usefixtures("waiting")
def test_a_long_error_keeps_its_code_and_ends_no_call_of_another(patient: Rig, size: int) -> None:
    """The client has gRPC's default limits, including 8 KiB of trailers."""
    error = refused(method(patient.channel(), "ModelInfer"), infer_request("wordy", id=str(size)), patient.metadata())
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == f"{'x' * MOST_MESSAGE_BYTES} …"


@pytest.mark.parametrize("start", ["", "x", "xx", "x" * 8, "x" * 9])
@pytest.mark.parametrize("character", ["x", "%", "ü", "€", "😀"])
def test_a_long_error_ends_after_a_whole_character(start: str, character: str) -> None:
    message = start + character * 5000
    headers = ResponseHeaders([(b"grpc-message", quote(message, safe=" ").encode())])
    kept = headers.message.removesuffix(" …")
    assert kept != headers.message
    assert message.startswith(kept)
    assert MOST_MESSAGE_BYTES - 24 <= len(quote(kept, safe=" ")) <= MOST_MESSAGE_BYTES
    assert headers.block == encode_header(b"grpc-message", quote(headers.message, safe=" ").encode())


@pytest.mark.usefixtures("waiting")
def test_headers_that_a_replica_refuses_end_no_call_of_another(patient: Rig) -> None:
    call = method(patient.channel(), "ModelInfer")
    for size in (20_000, 30_000):
        error = refused(call, infer_request("echo"), patient.metadata(("long", "x" * size)))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("end", [frame(RESET, 0, 1, h2.UINT32.pack(CANCEL)), frame(WINDOW, 0, 1, bytes(4)), b""])
def test_a_response_that_its_caller_does_not_read_is_dropped_with_its_stream(patient: Rig, end: bytes) -> None:
    """Otherwise callers without a credential fill the memory until the deadline."""
    no_window = h2.PREFACE + frame(SETTINGS, 0, 0, h2.SETTING.pack(h2.INITIAL_WINDOW_SIZE, 0))
    peer = Peer(patient, no_window).send(
        frame(HEADERS, 4, 1, request(path="/grpc.health.v1.Health/Check")), frame(DATA, 1, 1, bytes(5))
    )
    peer.next(HEADERS)
    assert len(patient.proxy.shared.open_calls) == 1
    peer.send(end) if end else peer.sock.close()
    patient.until(lambda: not patient.proxy.shared.open_calls)
