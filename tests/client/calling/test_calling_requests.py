import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from tidegate.calling.credentials import Credential
from tidegate.calling.model import Model
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import BusyError, RefusedError, UnreachableError, UsageError
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType

from lab.local_plane.process import HOST, free_ports
from tests.proxy.http import upstream as rig
from tests.proxy.http.upstream import head, raw, response

KEY = Credential("a test", ("X-API-Key", "tgk_not-for-anybody"))
ONE = {"IN": numpy.ones(4, numpy.float32)}
ANSWER = {"model_name": "m", "model_version": "1", "outputs": []}


well = raw(response(json.dumps(ANSWER).encode()))
half = head(b"Content-Length: 100") + b"x" * 50


def problem(kind: ProblemType, retry_after: float | None = None) -> rig.Act:
    sent = Problem(kind, "as configured", retry_after)
    headers = {name.decode(): value.decode() for name, value in sent.headers()}
    return raw(response(sent.body("r-1"), kind.status, CONTENT_TYPE, **headers))


@pytest.fixture
def behind() -> Iterator[rig.Upstream]:
    with rig.running_upstream(well) as running:
        yield running


def client(behind: rig.Upstream, **more: Any) -> ProxyClient:
    return ProxyClient(f"http://{behind.http}", KEY, **more)


Call = Callable[[ProxyClient], Any]
infer: Call = lambda client: client.infer("m", ONE)  # noqa: E731
metadata: Call = lambda client: client.metadata("m")  # noqa: E731


def test_connections_are_kept(behind: rig.Upstream) -> None:
    with client(behind) as calls:
        for _ in range(5):
            infer(calls)
            metadata(calls)
    assert (len(behind.requests), behind.connections) == (10, 1)


def test_a_request_has_the_credential_and_the_timeout(behind: rig.Upstream) -> None:
    client(behind).infer("m", ONE, server="gpu", version=3, sticky="ada", deadline=8)
    [request] = behind.requests
    assert request.line == "POST /servers/gpu/v2/models/m/versions/3/infer HTTP/1.1"
    assert request.headers["x-api-key"] == "tgk_not-for-anybody"
    assert request.headers["tidegate-sticky"] == "ada"
    assert 7 < float(request.headers["request-timeout"]) < 8
    length = int(request.headers["inference-header-content-length"])
    assert request.body[length:] == ONE["IN"].tobytes()


@pytest.mark.parametrize("word", ["BUSY", "RATE_LIMITED"])
def test_a_request_is_retried_after_retry_after_unless_the_deadline_is_earlier(behind: rig.Upstream, word: str) -> None:
    kind = ProblemType[word]
    behind.act = rig.by_turns(problem(kind, 0.2), problem(kind, 0.05), well)
    began = time.monotonic()
    infer(client(behind))
    assert 0.25 <= time.monotonic() - began < 3
    assert len(behind.requests) == 3
    behind.act = problem(kind, 30)
    began = time.monotonic()
    with pytest.raises(BusyError, match="as configured") as caught:
        infer(client(behind, seconds=5))
    assert caught.value.retry_after == 30
    assert time.monotonic() - began < 4
    assert len(behind.requests) == 4


@pytest.mark.parametrize(
    ("act", "call", "times"),
    [
        (problem(ProblemType.UPSTREAM), infer, 1),
        (problem(ProblemType.UPSTREAM), metadata, 3),
        (rig.reset, infer, 1),
        (rig.close, infer, 1),
        (rig.reset, metadata, 3),
        (problem(ProblemType.LOAD_FAILED), metadata, 1),
        (problem(ProblemType.NEVER_FITS), infer, 1),
        (raw(half, end="close"), infer, 1),
        (raw(half, pause=0.05, end="reset"), infer, 1),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Le", end="close"), infer, 1),
        (raw(b"\x00\x01 this is no HTTP\r\n\r\n", end="close"), infer, 1),
        (raw(head(b"Transfer-Encoding: chunked"), b"5\r\nhello\r\n10\r\nhalf", end="close"), infer, 1),
        (raw(response(b"<html>", kind="text/html")), infer, 1),
        (raw(head(b"Content-Length: 99999999999999")), infer, 1),
    ],
)
def test_only_harmless_requests_are_retried(behind: rig.Upstream, act: rig.Act, call: Call, times: int) -> None:
    behind.act = act
    with pytest.raises(UnreachableError) as caught:
        call(client(behind))
    assert len(behind.requests) == times
    assert "Traceback" not in str(caught.value)
    if call is metadata:
        behind.act = rig.by_turns(rig.reset, problem(ProblemType.UPSTREAM), well)
        assert metadata(client(behind)) == ANSWER


def test_a_kept_connection_that_the_proxy_closed_is_not_used(behind: rig.Upstream) -> None:
    message, closed = json.dumps(ANSWER).encode(), threading.Semaphore(0)

    async def act(made: rig.Upstream, writer: asyncio.StreamWriter, received: rig.Received) -> None:
        await raw(response(message), end="close")(made, writer, received)
        await writer.wait_closed()
        closed.release()

    behind.act = act
    with client(behind) as calls:
        for _ in range(5):
            infer(calls)
            assert closed.acquire(timeout=10)
    assert behind.connections == 5


def test_a_missing_server_is_tried_a_few_times_and_reported() -> None:
    (port,) = free_ports(1)
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"cannot be reached(.|\n)*Connection refused"):
        ProxyClient(f"http://{HOST}:{port}", KEY).infer("m", ONE)
    assert time.monotonic() - began < 3


DRIPS = raw(head(b"Content-Length: 1000"), *[b"x"] * 1000, pause=0.05)


@pytest.mark.parametrize("act", [rig.hang, DRIPS], ids=["hang", "drip"])
@pytest.mark.parametrize("call", [infer, metadata], ids=["infer", "look"])
def test_the_time_holds_however_slow_the_answer(behind: rig.Upstream, act: rig.Act, call: Call) -> None:
    behind.act = act
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="timed out"):
        call(client(behind, seconds=0.6))
    assert 0.5 < time.monotonic() - began < 20


def test_a_credential_that_ended_is_renewed_once(behind: rig.Upstream) -> None:
    class Renewed(Credential):
        times = 0

        def renew(self) -> bool:
            self.times += 1
            return True

    who = Renewed("a test", ("X-API-Key", "k"))
    behind.act = rig.by_turns(problem(ProblemType.UNAUTHENTICATED), well)
    ProxyClient(f"http://{behind.http}", who).infer("m", ONE)
    behind.act = problem(ProblemType.UNAUTHENTICATED)
    with pytest.raises(RefusedError):
        ProxyClient(f"http://{behind.http}", who).infer("m", ONE)
    assert who.times == 2
    assert len(behind.requests) == 4


def test_no_message_has_the_credential_and_a_missing_one_has_a_remedy(behind: rig.Upstream) -> None:
    behind.act = problem(ProblemType.UNAUTHENTICATED)
    with pytest.raises(RefusedError, match="TIDEGATE_API_KEY"):
        ProxyClient(f"http://{behind.http}", Credential()).metadata("m")
    cut = raw(half, end="close")
    for act in (problem(ProblemType.UNAUTHENTICATED), rig.reset, cut, rig.hang, problem(ProblemType.INTERNAL)):
        behind.act = act
        with pytest.raises((RefusedError, UnreachableError)) as caught:
            client(behind, seconds=0.3).metadata("m")
        assert "tgk_" not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize("name", ["../x", "", "a/b", "a?b", "ä", ".", "-a", "a" * 128, "a\r\nb"])
def test_names_with_paths_or_invalid_names_are_never_sent(behind: rig.Upstream, name: str) -> None:
    calls = client(behind)
    for call in (
        lambda: calls.metadata(name),
        lambda: calls.infer("m", ONE, server=name),
        lambda: calls.infer("m", ONE, version=name),
    ):
        with pytest.raises(UsageError):
            call()
    assert behind.requests == []


def test_threads_share_a_client(behind: rig.Upstream) -> None:
    found: list[Any] = []
    with client(behind) as calls:
        threads = [threading.Thread(target=lambda: found.extend(infer(calls) for _ in range(20))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(found) == 160
    assert behind.connections <= 8


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").write_text("no certificate")
    for name in ("empty", "missing"):
        monkeypatch.setenv("TIDEGATE_PROXY_CA", str(tmp_path / name))
        with pytest.raises(UsageError, match="TIDEGATE_PROXY_CA"):
            ProxyClient("https://proxy", KEY)


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"model_stats":1}', b'{"model_stats":[1]}', b"\xff"], ids=repr)
def test_invalid_statistics_are_reported(behind: rig.Upstream, body: bytes) -> None:
    behind.act = raw(response(body))
    with pytest.raises(UnreachableError, match="not a response of an inference proxy"):
        client(behind).statistics("m")
    with pytest.raises(UnreachableError, match="not a response of an inference proxy"):
        client(behind).whoami()


def test_a_response_before_the_end_of_the_request_is_read() -> None:
    sent = Problem(ProblemType.TOO_LONG, "as configured")
    early = raw(response(sent.body("r-1"), 413, CONTENT_TYPE, connection="close"), end="close")
    with rig.running_upstream(early) as running, pytest.raises(UsageError, match="exceeds the proxy's size limit"):
        ProxyClient(f"http://{running.http}", KEY).infer("m", {"IN": numpy.ones(1 << 23, numpy.float32)})


def test_the_clients_own_time_may_be_longer_than_a_deadline_can_be(behind: rig.Upstream) -> None:
    assert Model(ProxyClient(f"http://{behind.http}", KEY, seconds=1e9), "m")._checked({}).version is None
