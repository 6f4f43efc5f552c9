"""The thread of the admin port, and where a process listens."""

import asyncio
import socket
import time
import urllib.request

import pytest
from fastapi import FastAPI
from tidegate_service.admin_thread import AdminThread
from tidegate_service.listening import listen


def test_the_admin_port_answers_while_the_loop_of_the_process_is_held_up() -> None:
    app = FastAPI()
    app.get("/livez")(lambda: "alive")
    listener = listen("127.0.0.1", 0, 8)
    port = listener.getsockname()[1]
    thread = AdminThread(app, listener)
    thread.start()

    async def held_up() -> bytes:
        asked = asyncio.create_task(asyncio.to_thread(ask))
        await asyncio.sleep(0)  # the question is under way
        end = time.monotonic() + 30
        while not answered and time.monotonic() < end:
            time.sleep(0.01)  # the process' own loop does nothing now
        assert not asked.done()
        return answered[0]

    answered: list[bytes] = []

    def ask() -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=30) as answer:
            answered.append(answer.read())

    try:
        assert asyncio.run(held_up()) == b'"alive"'
    finally:
        thread.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_no_host_is_every_address() -> None:
    with listen("", 0, 8) as listener:
        port = listener.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        if socket.has_dualstack_ipv6():
            socket.create_connection(("::1", port), timeout=5).close()


def test_answers_are_sent_at_once() -> None:
    with (
        listen("127.0.0.1", 0, 8) as listener,
        socket.create_connection(listener.getsockname(), timeout=5),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
