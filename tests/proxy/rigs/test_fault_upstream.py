"""The upstream that misbehaves does what each of its behaviours says, and knows what it was sent."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from . import upstream as faults
from .upstream import Behaviour, Upstream, upstream


@pytest.fixture
def running() -> Iterator[Upstream]:
    with upstream() as started:
        yield started


def call(running: Upstream, body: bytes = b"", seconds: float = 5.0) -> tuple[int, bytes]:
    asking = http.client.HTTPConnection(running.http, timeout=seconds)
    try:
        asking.request("POST", "/v2/models/m/infer", body)
        answer = asking.getresponse()
        return answer.status, answer.read()
    finally:
        asking.close()


def test_it_answers_well_and_keeps_the_connection(running: Upstream) -> None:
    asking = http.client.HTTPConnection(running.http, timeout=5)
    for size in (0, 700_000):
        asking.request("POST", "/v2/models/m/infer", b"x" * size)
        assert json.loads(asking.getresponse().read()) == {
            "line": "POST /v2/models/m/infer HTTP/1.1",
            "bytes": size,
            "connection": 1,
        }
    asking.close()
    assert [request.path for request in running.requests] == ["/v2/models/m/infer"] * 2


def test_it_reads_chunks(running: Upstream) -> None:
    asking = http.client.HTTPConnection(running.http, timeout=5)
    asking.request("POST", "/", iter([b"ab", b"cde"]), encode_chunked=True)
    asking.getresponse().read()
    asking.close()
    assert running.requests[0].body == b"abcde"


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (faults.hang, TimeoutError),
        (faults.reset, ConnectionResetError),
        (faults.close, http.client.RemoteDisconnected),
        (faults.half, http.client.IncompleteRead),
        (faults.half_then_reset, ConnectionResetError),
        (faults.nonsense, http.client.BadStatusLine),
        (faults.truncated_chunks, http.client.IncompleteRead),
        (faults.events("1", cut=True), (http.client.IncompleteRead, ConnectionResetError)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_reaches_the_caller(
    running: Upstream, behaviour: Behaviour, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    running.behave = behaviour
    with pytest.raises(error):
        call(running, seconds=0.5)


def test_a_kept_connection_is_dead_when_the_upstream_closed_it_unsaid(running: Upstream) -> None:
    running.behave = faults.answer_then_close
    asking = http.client.HTTPConnection(running.http, timeout=5)
    asking.request("POST", "/")
    answer = asking.getresponse()
    answer.read()
    assert (answer.status, answer.getheader("connection")) == (200, None)
    time.sleep(0.1)
    with suppress(ConnectionError):
        asking.request("POST", "/")
    with pytest.raises((http.client.RemoteDisconnected, http.client.CannotSendRequest, ConnectionError)):
        asking.getresponse()
    asking.close()


def test_a_head_can_end_in_its_middle(running: Upstream) -> None:
    running.behave = faults.half_a_head
    with socket.create_connection(("127.0.0.1", running.port), timeout=5) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\n\r\n")
        found = b"".join(iter(lambda: asking.recv(1000), b""))
    assert found == b"HTTP/1.1 200 OK\r\nContent-Le"


def test_it_drips(running: Upstream) -> None:
    running.behave = faults.drip(b"abc", 0.05)
    begin = time.monotonic()
    assert call(running) == (200, b"abc")
    assert time.monotonic() - begin >= 0.1


def test_it_streams_events(running: Upstream) -> None:
    running.behave = faults.events('{"OUT":1}', '{"error":"no"}')
    assert call(running) == (200, b'data: {"OUT":1}\n\ndata: {"error":"no"}\n\n')


def test_it_behaves_by_turns_and_slowly(running: Upstream) -> None:
    running.behave = faults.by_turns(faults.reset, faults.slowly(0.1))
    with pytest.raises(ConnectionResetError):
        call(running)
    begin = time.monotonic()
    assert call(running)[0] == call(running)[0] == 200
    assert time.monotonic() - begin >= 0.2


def test_it_notes_who_left_before_the_answer(running: Upstream) -> None:
    running.behave = faults.hang
    with pytest.raises(TimeoutError):
        call(running, seconds=0.2)
    running.wait_for(1, running.left)
    assert running.left == running.requests


def test_nobody_listens_when_it_has_ended() -> None:
    with upstream() as ended:
        pass
    with pytest.raises(ConnectionRefusedError):
        call(ended)
    with upstream(port=ended.port) as again:
        assert call(again)[0] == 200
