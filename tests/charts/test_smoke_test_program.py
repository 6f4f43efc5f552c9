"""What `helm test` runs: it asks the proxy's probes, and says which of them failed and why."""

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread

import pytest
from tidegate_contracts import proxy_process

from charts import smoke_test_program as program

READY = proxy_process.READY_PATH
SMALL, LARGE = proxy_process.server_ready_path("small"), proxy_process.server_ready_path("large")


class Proxy(ThreadingHTTPServer):
    """Answers probes as it is told."""

    answers: dict[str, tuple[int, bytes]]

    @property
    def port(self) -> str:
        return str(self.server_address[1])


class Probes(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        status, body = self.server.answers.get(self.path, (404, b"no such server"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    monkeypatch.setattr(program, "PATIENCE_SECONDS", 0)
    server = Proxy(("127.0.0.1", 0), Probes)
    server.answers = {READY: (200, b""), SMALL: (200, b""), LARGE: (200, b"")}
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_it_passes_when_the_proxy_and_every_server_are_ready(proxy: Proxy, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main("127.0.0.1", proxy.port, READY, SMALL, LARGE) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ok"] * 3


def test_it_names_the_server_that_is_not_ready_and_says_what_the_proxy_says(
    proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.answers[LARGE] = (503, b"no replica of large\x1b[2J is ready\n")
    assert program.main("127.0.0.1", proxy.port, READY, SMALL, LARGE) == 1
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    assert failed == [f"FAILED  proxy 127.0.0.1 {LARGE}: HTTP 503 no replica of large [2J is ready"]


@pytest.mark.parametrize("what", ["an unknown server", "no answer", "no address"])
def test_what_fails_is_said(proxy: Proxy, capsys: pytest.CaptureFixture[str], what: str) -> None:
    host, path, said = {
        "an unknown server": ("127.0.0.1", proxy_process.server_ready_path("gone"), "HTTP 404 no such server"),
        "no answer": ("127.0.0.1", READY, "no answer ("),
        "no address": ("inference-proxy-headless.nowhere.invalid", READY, "no replica of the proxy is ready"),
    }[what]
    if what == "no answer":
        proxy.server_close()
        proxy.shutdown()
    assert program.main(host, proxy.port, path) == 1
    assert said in capsys.readouterr().out


def test_it_waits_for_what_becomes_ready(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.answers[SMALL] = (503, b"loading")
    monkeypatch.setattr(program, "PATIENCE_SECONDS", 60)
    monkeypatch.setattr("time.sleep", lambda _: proxy.answers.update({SMALL: (200, b"")}))
    assert program.main("127.0.0.1", proxy.port, READY, SMALL) == 0


def test_those_that_do_not_answer_are_waited_for_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that many of them keep the test no longer than one."""
    together = Barrier(program.AT_ONCE)

    def waits(*_: object) -> str:
        together.wait(60)
        return ""

    monkeypatch.setattr(program, "failure", waits)
    assert program.main("127.0.0.1", "8082", *(f"/{number}" for number in range(program.AT_ONCE))) == 0


def test_the_pod_runs_it_as_text_on_a_bare_python(proxy: Proxy) -> None:
    source = Path(program.__file__).read_text("utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", source, "127.0.0.1", proxy.port, READY, SMALL],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok ") == 2
