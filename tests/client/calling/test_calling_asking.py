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
from tests.proxy.rigs import upstream as rig

KEY = Credential("a test", ("X-API-Key", "tgk_not-for-anybody"))
ONE = {"IN": numpy.ones(4, numpy.float32)}
ANSWER = {"model_name": "m", "model_version": "1", "outputs": []}


def well(caller: rig.Caller) -> None:
    caller.answer(json.dumps(ANSWER).encode())


def problem(kind: ProblemType, retry_after: float | None = None) -> rig.Behaviour:
    def behave(caller: rig.Caller) -> None:
        sent = Problem(kind, "as configured", retry_after)
        headers = {name.decode().replace("-", "_"): value.decode() for name, value in sent.headers()}
        caller.answer(sent.body("r-1"), kind.status, CONTENT_TYPE, **headers)

    return behave


@pytest.fixture
def behind() -> Iterator[rig.Upstream]:
    with rig.upstream(well) as running:
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
    behind.behave = rig.by_turns(problem(kind, 0.2), problem(kind, 0.05), well)
    began = time.monotonic()
    infer(client(behind))
    assert 0.25 <= time.monotonic() - began < 3
    assert len(behind.requests) == 3
    behind.behave = problem(kind, 30)
    began = time.monotonic()
    with pytest.raises(BusyError, match="as configured") as caught:
        infer(client(behind, seconds=5))
    assert caught.value.retry_after == 30
    assert time.monotonic() - began < 4
    assert len(behind.requests) == 4


@pytest.mark.parametrize(
    ("behave", "call", "times"),
    [
        (problem(ProblemType.UPSTREAM), infer, 1),
        (problem(ProblemType.UPSTREAM), metadata, 3),
        (rig.reset, infer, 1),
        (rig.close, infer, 1),
        (rig.reset, metadata, 3),
        (problem(ProblemType.LOAD_FAILED), metadata, 1),
        (problem(ProblemType.NEVER_FITS), infer, 1),
        (rig.half, infer, 1),
        (rig.half_then_reset, infer, 1),
        (rig.half_a_head, infer, 1),
        (rig.nonsense, infer, 1),
        (rig.truncated_chunks, infer, 1),
        (lambda caller: caller.answer(b"<html>", kind="text/html"), infer, 1),
        (lambda caller: caller.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"), infer, 1),
    ],
)
def test_only_harmless_requests_are_retried(
    behind: rig.Upstream, behave: rig.Behaviour, call: Call, times: int
) -> None:
    behind.behave = behave
    with pytest.raises(UnreachableError) as caught:
        call(client(behind))
    assert len(behind.requests) == times
    assert "Traceback" not in str(caught.value)
    if call is metadata:
        behind.behave = rig.by_turns(rig.reset, problem(ProblemType.UPSTREAM), well)
        assert metadata(client(behind)) == ANSWER


def test_a_kept_connection_that_the_proxy_closed_is_not_used(behind: rig.Upstream) -> None:
    message, closed = json.dumps(ANSWER).encode(), threading.Semaphore(0)

    def behave(caller: rig.Caller) -> None:
        caller.answer(message)
        caller.close()
        closed.release()

    behind.behave = behave
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


@pytest.mark.parametrize("behave", [rig.hang, rig.drip(b"x" * 1000, 0.05)], ids=["hang", "drip"])
@pytest.mark.parametrize("call", [infer, metadata], ids=["infer", "look"])
def test_the_time_holds_however_slow_the_answer(behind: rig.Upstream, behave: rig.Behaviour, call: Call) -> None:
    behind.behave = behave
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
    behind.behave = rig.by_turns(problem(ProblemType.UNAUTHENTICATED), well)
    ProxyClient(f"http://{behind.http}", who).infer("m", ONE)
    behind.behave = problem(ProblemType.UNAUTHENTICATED)
    with pytest.raises(RefusedError):
        ProxyClient(f"http://{behind.http}", who).infer("m", ONE)
    assert who.times == 2
    assert len(behind.requests) == 4


def test_no_message_has_the_credential_and_a_missing_one_has_a_remedy(behind: rig.Upstream) -> None:
    behind.behave = problem(ProblemType.UNAUTHENTICATED)
    with pytest.raises(RefusedError, match="TIDEGATE_API_KEY"):
        ProxyClient(f"http://{behind.http}", Credential()).metadata("m")
    for behave in (problem(ProblemType.UNAUTHENTICATED), rig.reset, rig.half, rig.hang, problem(ProblemType.INTERNAL)):
        behind.behave = behave
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
    behind.behave = lambda caller: caller.answer(body)
    with pytest.raises(UnreachableError, match="not a response of an inference proxy"):
        client(behind).statistics("m")
    with pytest.raises(UnreachableError, match="not a response of an inference proxy"):
        client(behind).whoami()


def test_a_response_before_the_end_of_the_request_is_read() -> None:
    def early(caller: rig.Caller) -> None:
        sent = Problem(ProblemType.TOO_LONG, "as configured")
        caller.answer(sent.body("r-1"), 413, CONTENT_TYPE, connection="close")

    with rig.upstream(early) as running, pytest.raises(UsageError, match="exceeds the proxy's size limit"):
        ProxyClient(f"http://{running.http}", KEY).infer("m", {"IN": numpy.ones(1 << 23, numpy.float32)})


def test_the_clients_own_time_may_be_longer_than_a_deadline_can_be(behind: rig.Upstream) -> None:
    assert Model(ProxyClient(f"http://{behind.http}", KEY, seconds=1e9), "m")._checked({}).version is None
