"""What the proxy and Triton refuse, in words and kinds that people and programs understand."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling.replies import _SAID, Reply, error_of, is_failure, retry_after
from tidegate.errors import (
    BusyError,
    ExitCode,
    LoadFailedError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from tidegate_proxy.problems import CONTENT_TYPE, Kind, Problem

EXPECTED = {
    Kind.MALFORMED: UsageError, Kind.UNAUTHENTICATED: RefusedError, Kind.DENIED: RefusedError,
    Kind.UNKNOWN: NotFoundError, Kind.METHOD: UsageError, Kind.SLOW: UnreachableError, Kind.TOO_LONG: UsageError,
    Kind.HEADERS: UsageError, Kind.LOAD_FAILED: LoadFailedError, Kind.RATE_LIMITED: BusyError,
    Kind.INTERNAL: UnreachableError, Kind.UPSTREAM: UnreachableError, Kind.BUSY: BusyError,
    Kind.DEADLINE: UnreachableError, Kind.NEVER_FITS: LoadFailedError,
}  # fmt: skip


def told(problem: Problem) -> Reply:
    """What the proxy answers."""
    headers = {name.decode().lower(): value.decode() for name, value in problem.headers()}
    return Reply(problem.kind.status, headers | {"content-type": CONTENT_TYPE}, problem.body("order-7"))


def triton(status: int, body: Any) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(body).encode())


def test_every_problem_of_the_proxy_has_words() -> None:
    assert set(_SAID) == {kind.word for kind in Kind}
    assert set(EXPECTED) == set(Kind)


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.word)
def test_a_problem_is_an_error_with_its_detail_and_its_request(kind: Kind) -> None:
    error = error_of(told(Problem(kind, "the why and the what")), "https://proxy/v2")
    assert type(error) is EXPECTED[kind]
    assert str(error).startswith("https://proxy/v2: ")
    assert error.why == "the why and the what (request order-7)"
    assert error.do or kind is Kind.MALFORMED


def test_busy_says_when_to_come_again_to_the_millisecond() -> None:
    reply = told(Problem(Kind.BUSY, "full", 0.1234))
    assert retry_after(reply) == 0.123
    error = error_of(reply, "here")
    assert isinstance(error, BusyError)
    assert error.retry_after == 0.123
    assert error.exit_code is ExitCode.BUSY


def test_the_header_counts_where_somebody_in_between_is_busy() -> None:
    assert retry_after(Reply(503, {"retry-after": "7"}, b"<html>")) == 7
    assert retry_after(Reply(429, {"retry-after": "-1"}, b"")) == 0
    assert retry_after(Reply(503, {"retry-after": "Fri, 31 Dec 2027 23:59:59 GMT"}, b"")) is None
    assert retry_after(Reply(503, {}, b"")) is None
    assert retry_after(Reply(502, {"retry-after": "7"}, b"")) is None


def test_without_a_credential_it_is_said_what_to_set() -> None:
    error = error_of(told(Problem(Kind.UNAUTHENTICATED, "nobody")), "here", anonymous=True)
    assert "TIDEGATE_API_KEY" in error.do


@pytest.mark.parametrize(("status", "kind"), [(400, UsageError), (404, NotFoundError), (500, UnreachableError)])
def test_tritons_own_errors_keep_their_words(status: int, kind: type[Exception]) -> None:
    error = error_of(triton(status, {"error": "unexpected shape for input"}), "here")
    assert type(error) is kind
    assert error.why == "unexpected shape for input"


def test_what_is_neither_is_not_taken_for_a_proxy() -> None:
    error = error_of(Reply(404, {"content-type": "text/html"}, b"<html>nginx"), "here")
    assert isinstance(error, UnreachableError)
    assert "404" in error.why


def test_only_what_failed_counts_against_the_proxy() -> None:
    failures = {kind for kind in Kind if is_failure(told(Problem(kind, "x", 1.0)))}
    assert failures == {Kind.INTERNAL, Kind.UPSTREAM, Kind.DEADLINE}
    assert not is_failure(triton(500, {"error": "the model divides by zero"}))
    assert is_failure(Reply(502, {}, b"<html>"))


@given(st.integers(300, 599), st.binary(max_size=50) | st.text().map(lambda text: json.dumps({"error": text}).encode()))
def test_whatever_is_answered_is_an_error_on_lines_of_our_own(status: int, body: bytes) -> None:
    for kind in (CONTENT_TYPE, "application/json", ""):
        error = error_of(Reply(status, {"content-type": kind}, body), "here")
        assert len(str(error).splitlines()) <= 3
        assert str(error).isprintable() or "\n" in str(error)


@pytest.mark.parametrize("said", ["nan", "-nan"])
def test_a_time_that_is_no_number_is_none(said: str) -> None:
    assert retry_after(Reply(503, {"retry-after": said}, b"")) is None
