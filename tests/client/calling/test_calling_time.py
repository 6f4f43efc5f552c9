import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling import retries as retries_module
from tidegate.calling.retries import Deadline
from tidegate.calling.transport import TimeIsUpError, Transport

from tests.client.clock import Clock


@given(st.floats(0, 30), st.floats(0.01, 60))
def test_no_retry_is_before_retry_after_or_after_the_deadline(retry_after: float, seconds: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(retries_module, "time", clock)
        waited = Deadline(seconds).wait(retry_after)
        passed = clock.now - 1000
    if waited:
        assert retry_after - 1e-9 <= passed <= seconds + 1e-9
    else:
        assert passed == 0
        assert retry_after >= seconds - 1e-9


def test_callers_refused_together_do_not_retry_together(clock: Clock) -> None:
    waits = set()
    for _ in range(20):
        before = clock.now
        assert Deadline(60).wait(2)
        waits.add(round(clock.now - before, 4))
    assert len(waits) > 10


def test_pauses_without_retry_after_grow_up_to_two_seconds(clock: Clock) -> None:
    until, pauses = Deadline(1000), []
    for _ in range(10):
        before = clock.now
        assert until.wait()
        pauses.append(clock.now - before)
    assert 0.05 <= pauses[0] <= 0.1
    assert all(1 <= pause <= 2 for pause in pauses[6:])


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BODY = bytes(16 << 20)  # more than the buffers of both sides


@contextmanager
def slow(*pauses: float) -> Iterator[str]:
    """Serve requests over one connection, and pause before reading each body. Yields the address."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for pause in pauses:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(1)
                    over.wait(pause)
                    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    while left and (piece := connection.recv(min(left, 1 << 20))):
                        left -= len(piece)
                    if left:
                        return
                    connection.sendall(ANSWER)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join(10)


def ask(client: Transport, body: bytes, seconds: float) -> int:
    return client.ask("POST", "/x", [body], {}, time.monotonic() + seconds).status


def test_a_large_body_has_the_time_of_its_request() -> None:
    with slow(0, 1.0) as url:
        client = Transport(url)
        assert ask(client, b"x", 30) == 200
        assert ask(client, BODY, 30) == 200


def test_sending_ends_when_the_time_is_up() -> None:
    with slow(60.0) as url:
        begun = time.monotonic()
        with pytest.raises(TimeIsUpError):
            ask(Transport(url), BODY, 0.5)
        assert time.monotonic() - begun < 20
