"""A large body has the time that its request has, over a new connection and over one that was kept."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tidegate.calling import transport
from tidegate.calling.transport import TimeIsUpError, Transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BODY = bytes(16 << 20)
"""More than both sides' buffers hold."""


@contextmanager
def slow(*pauses: float) -> Iterator[str]:
    """Serve requests over one connection, and pause before the body of each is read; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for pause in pauses:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(1)
                    time.sleep(pause)
                    left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    while left and (piece := connection.recv(min(left, 1 << 20))):
                        left -= len(piece)
                    if left:
                        return
                    connection.sendall(ANSWER)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def ask(client: Transport, body: bytes, seconds: float) -> int:
    return client.ask("POST", "/x", [body], {}, time.monotonic() + seconds).status


def test_sending_may_take_longer_than_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_CONNECT_SECONDS", 0.3)
    with slow(1.0) as url:
        assert ask(Transport(url), BODY, 30) == 200


def test_sending_over_a_kept_connection_may_take_longer_than_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_CONNECT_SECONDS", 0.3)
    with slow(0, 1.0) as url:
        client = Transport(url)
        assert ask(client, b"x", 0.5) == 200
        assert ask(client, BODY, 30) == 200


def test_sending_ends_when_the_time_is_up() -> None:
    with slow(1.5) as url:
        begun = time.monotonic()
        with pytest.raises(TimeIsUpError):
            ask(Transport(url), BODY, 0.5)
        assert time.monotonic() - begun < 1.2
