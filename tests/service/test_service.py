import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from fastapi import FastAPI
from tidegate_service.json_lines import JsonLines
from tidegate_service.listening import AdminThread, listen


def line(message: str, *words: object, data: dict[str, object] | None = None) -> str:
    record = logging.LogRecord("a.logger", logging.WARNING, "", 0, message, words, None)
    if data is not None:
        record.data = data
    return JsonLines().format(record)


def test_a_line_has_time_logger_event_and_fields() -> None:
    found = json.loads(line("%s is away", "é\n", data={"model": "a", "seconds": 0.5}))
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "warning", "logger": "a.logger", "message": "é\n is away", "model": "a", "seconds": 0.5}


def test_a_log_record_with_any_text_is_one_line() -> None:
    assert "\n" not in line("a\nb", data={"why": "c\nd", "path": object()})


def test_a_trace_is_in_the_line_of_its_failure() -> None:
    try:
        raise ValueError("not so")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert "ValueError: not so" in json.loads(JsonLines().format(record))["exception"]


def test_libraries_write_such_lines_too_once_it_is_configured() -> None:
    program = (
        "import logging; logging.basicConfig(); from tidegate_service.json_lines import configure; configure('warning')"
        "; logging.getLogger('any.library').warning('shown'); logging.getLogger('any.library').info('not shown')"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=paths, capture_output=True, text=True, timeout=60, check=True
    )
    assert [json.loads(each)["message"] for each in done.stderr.splitlines()] == ["shown"]
    assert not done.stdout


def test_the_admin_port_answers_while_the_loop_of_the_process_is_held_up() -> None:
    app = FastAPI()
    app.get("/livez")(lambda: "alive")
    listener = listen("127.0.0.1", 0, 8)
    port = listener.getsockname()[1]
    thread = AdminThread(app, listener)
    thread.start()

    async def held_up() -> bytes:
        call = asyncio.create_task(asyncio.to_thread(ask))
        await asyncio.sleep(0)  # the request is in progress
        end = time.monotonic() + 30
        while not answered and time.monotonic() < end:
            time.sleep(0.01)  # the process's own loop does nothing now
        assert not call.done()
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
