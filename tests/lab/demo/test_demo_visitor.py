"""The visitor tells right answers from wrong ones, and comes back when it is told to."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from lab.demo import zoo
from lab.demo.visitor import MOST_TRIES, NUMBERS, Reply, Tally, Visitor

RIGHT = {"OUTPUT": [number * zoo.FACTORS["fox"] for number in NUMBERS]}
Answers = list[tuple[int, Any, dict[str, str]]]


@contextmanager
def proxy(answers: Answers) -> Iterator[tuple[Visitor, list[dict[str, str]]]]:
    """A stand-in that gives these answers, one after the other, and the last one for ever."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append({"path": self.path, "who": self.headers["authorization"]})
            status, said, headers = answers[min(len(asked), len(answers)) - 1]
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            for name, value in (headers | {"content-length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield Visitor([f"127.0.0.1:{server.server_port}"], "key"), asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited, without waiting."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def test_it_says_who_it_is_and_knows_a_right_answer() -> None:
    with proxy([(200, RIGHT, {})]) as (visitor, asked):
        reply = visitor.call("fox")
    assert reply.is_right("fox")
    assert not reply.is_right("emu")
    assert asked == [{"path": "/v2/models/fox/generate", "who": "Bearer key"}]


@pytest.mark.parametrize("said", [b"", b"no JSON", {"OUTPUT": [1.0]}, {}, []], ids=repr)
def test_what_is_not_the_models_answer_is_not_right(said: object) -> None:
    with proxy([(200, said, {})]) as (visitor, _):
        assert not visitor.call("fox").is_right("fox")


def test_busy_is_obeyed_as_exactly_as_it_is_said(naps: list[float]) -> None:
    with proxy([(503, {"detail": "full"}, {"retry-after": "7"}), (200, RIGHT, {})]) as (visitor, asked):
        reply = visitor.want("fox")
    assert (reply.status, reply.tries, naps, len(asked)) == (200, 2, [7.0], 2)


def test_it_does_not_come_back_for_ever(naps: list[float]) -> None:
    with proxy([(503, {"detail": "full"}, {"retry-after": "1"})]) as (visitor, asked):
        reply = visitor.want("fox")
    assert (reply.status, reply.why, len(asked)) == (503, "full", MOST_TRIES)
    assert naps == [1.0] * (MOST_TRIES - 1)


@pytest.mark.parametrize(("status", "headers"), [(503, {}), (424, {"retry-after": "1"}), (404, {})])
def test_it_comes_back_only_when_busy_says_when(naps: list[float], status: int, headers: dict[str, str]) -> None:
    with proxy([(status, {"detail": "no"}, headers)]) as (visitor, asked):
        assert visitor.want("fox").status == status
    assert (naps, len(asked)) == ([], 1)


def test_wrong_answers_and_those_without_a_time_count_as_failed() -> None:
    tally = Tally()
    for status, said, after in [(200, RIGHT, None), (200, {"OUTPUT": []}, None), (503, {"detail": "full"}, None)]:
        tally.add("fox", Reply(status, said, after, 0.1))
    assert (tally.calls, tally.failed, tally.wrong, tally.without_retry) == (3, 2, 1, 1)
    assert tally.usual_reason == "503 full"
