import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate import errors
from tidegate.calling.replies import _PROBLEMS, Reply, error_of, is_failure, retry_after
from tidegate_proxy.kinds import KINDS as SERVERS
from tidegate_proxy.problems import CONTENT_TYPE, Problem, ProblemType

KINDS = {
    errors.UsageError: (ProblemType.MALFORMED, ProblemType.METHOD, ProblemType.TOO_LONG, ProblemType.HEADERS),
    errors.RefusedError: (ProblemType.UNAUTHENTICATED, ProblemType.DENIED),
    errors.NotFoundError: (ProblemType.UNKNOWN,),
    errors.BusyError: (ProblemType.RATE_LIMITED, ProblemType.BUSY, ProblemType.FULL),
    errors.LoadFailedError: (ProblemType.LOAD_FAILED, ProblemType.NEVER_FITS),
    errors.UnreachableError: (ProblemType.SLOW, ProblemType.INTERNAL, ProblemType.UPSTREAM, ProblemType.DEADLINE),
}
EXPECTED = {kind: error for error, kinds in KINDS.items() for kind in kinds}


def caught(problem: Problem) -> Reply:
    headers = {name.decode().lower(): value.decode() for name, value in problem.headers()}
    return Reply(problem.type.status, headers | {"content-type": CONTENT_TYPE}, problem.body("order-7"))


def triton(status: int, body: Any) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(body).encode())


def test_every_problem_of_the_proxy_has_words() -> None:
    assert set(_PROBLEMS) == {kind.word for kind in ProblemType}
    assert set(EXPECTED) == set(ProblemType)


@pytest.mark.parametrize("kind", list(ProblemType), ids=lambda kind: kind.word)
def test_a_problem_is_an_error_with_its_detail_and_its_request(kind: ProblemType) -> None:
    error = error_of(caught(Problem(kind, "the why and the what")), "https://proxy/v2")
    assert type(error) is EXPECTED[kind]
    assert str(error).startswith("https://proxy/v2: ")
    assert error.why == "the why and the what (request order-7)"
    assert error.do or kind is ProblemType.MALFORMED


@pytest.mark.parametrize("kind", list(ProblemType), ids=lambda kind: kind.word)
def test_a_problem_in_the_format_of_openais_api_is_the_same_error(kind: ProblemType) -> None:
    for reason in ("", "unknown-url") if kind is ProblemType.UNKNOWN else ("",):
        media_type, body = SERVERS["openai"].problem_body(Problem(kind, "the why", reason=reason), "order-7")
        error = error_of(Reply(kind.status, {"content-type": media_type}, body), "here")
        assert (type(error), error.why) == (EXPECTED[kind], "the why")
        assert error.what == error_of(caught(Problem(kind, "the why")), "here").what


def test_busy_has_a_retry_after_in_milliseconds() -> None:
    reply = caught(Problem(ProblemType.BUSY, "full", 0.1234))
    assert retry_after(reply) == 0.123
    error = error_of(reply, "here")
    assert isinstance(error, errors.BusyError)
    assert error.retry_after == 0.123
    assert error.exit_code is errors.ExitCode.BUSY


def test_the_header_counts_if_a_gateway_is_busy() -> None:
    assert retry_after(Reply(503, {"retry-after": "7"}, b"<html>")) == 7
    assert retry_after(Reply(429, {"retry-after": "-1"}, b"")) == 0
    assert retry_after(Reply(503, {"retry-after": "Fri, 31 Dec 2027 23:59:59 GMT"}, b"")) is None
    assert [retry_after(Reply(503, {"retry-after": message}, b"")) for message in ("nan", "-nan")] == [None, None]
    assert retry_after(Reply(503, {}, b"")) is None
    assert retry_after(Reply(502, {"retry-after": "7"}, b"")) is None


@pytest.mark.parametrize(
    ("status", "kind"), [(400, errors.UsageError), (404, errors.NotFoundError), (500, errors.UnreachableError)]
)
def test_tritons_own_errors_keep_their_words(status: int, kind: type[Exception]) -> None:
    error = error_of(triton(status, {"error": "unexpected shape for input"}), "here")
    assert type(error) is kind
    assert error.why == "unexpected shape for input"


def test_other_responses_are_not_mistaken_for_a_proxys() -> None:
    error = error_of(Reply(404, {"content-type": "text/html"}, b"<html>nginx"), "here")
    assert isinstance(error, errors.UnreachableError)
    assert "404" in error.why


def test_only_failures_count_against_the_proxy() -> None:
    failures = {kind for kind in ProblemType if is_failure(caught(Problem(kind, "x", 1.0)))}
    assert failures == {ProblemType.INTERNAL, ProblemType.UPSTREAM, ProblemType.DEADLINE}
    assert not is_failure(triton(500, {"error": "the model divides by zero"}))
    assert is_failure(Reply(502, {}, b"<html>"))


@given(st.integers(300, 599), st.binary(max_size=50) | st.text().map(lambda text: json.dumps({"error": text}).encode()))
def test_any_error_response_becomes_our_own_lines(status: int, body: bytes) -> None:
    for kind in (CONTENT_TYPE, "application/json", ""):
        error = error_of(Reply(status, {"content-type": kind}, body), "here")
        assert len(str(error).splitlines()) <= 3
        assert str(error).isprintable() or "\n" in str(error)
