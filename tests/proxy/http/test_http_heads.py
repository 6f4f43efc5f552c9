"""Reading a head with a cached shape or header by header gives the same request."""

from types import SimpleNamespace
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_proxy.http import head
from tidegate_proxy.http.head import HeadedRequest, Shapes
from tidegate_proxy.problems import Problem

NAMES = [
    b"Host", b"host", b"Content-Length", b"Authorization", b"X-API-Key", b"x-domino-api-key", b"X-Request-Id",
    b"Connection", b"Accept", b"Content-Type", b"a%b", b"A_b", b"Cookie", b"TE", b"Expect", b"Request-Timeout",
    b"Tidegate-Sticky", b"Upgrade", b"Transfer-Encoding", b"Proxy-Connection", b"traceparent", b"Keep-Alive",
]  # fmt: skip
VALUES = [
    b"1",
    b"7",
    b"0" * 5000 + b"7",
    b"",
    b"close",
    b"keep-alive",
    b"Accept, a%b",
    b"chunked",
    b"100-continue",
    b"a %b c",
    b"a b",
]
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=9)
READ = (
    "credential", "deadline", "expects_continue", "http_11", "keep_alive", "method", "passed", "request_id", "sticky",
)  # fmt: skip
HALF = head.HALF_A_HEAD


class Request(HeadedRequest):
    def __init__(self, is_unknown: bool = False) -> None:
        self.started = 1.0
        self.shared = SimpleNamespace(call_seconds=60.0)  # type: ignore[assignment]
        self.caller = SimpleNamespace(is_unknown=is_unknown)  # type: ignore[assignment]


def parsed(headers: list[tuple[bytes, bytes]], version: bytes) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(SimpleNamespace())
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    parser.feed_data(b"POST / HTTP/" + version + b"\r\n" + lines + b"\r\n")
    return parser


def read(
    shapes: Shapes, headers: list[tuple[bytes, bytes]], version: bytes, before: int, is_unknown: bool = False
) -> Any:
    request, parts = Request(is_unknown), [part for header in headers for part in header]
    try:
        upgrades = request.read_head(parts, parsed(headers, version), before, shapes)
    except (ValueError, httptools.HttpParserError) as error:
        return type(error)
    refusal = request.refusal.detail if isinstance(request.refusal, Problem) else None
    body = request.body
    return [getattr(request, name) for name in READ], refusal, body.length, body.chunked, upgrades


@given(HEADERS, st.sampled_from([b"1.1", b"1.0"]), st.sampled_from([0, HALF, HALF + 1]))
def test_a_head_of_known_names_is_read_as_any_other(
    headers: list[tuple[bytes, bytes]], version: bytes, before: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "new_request_id", lambda: b"new")
        try:
            parsed(headers, version)
        except httptools.HttpParserError:
            return
        shapes = Shapes()
        each = read(shapes, headers, version, before, is_unknown=True)  # unauthenticated callers cause no caching
        for _ in range(2):
            assert read(shapes, headers, version, before) == each


def test_few_and_short_heads_of_authenticated_callers_are_cached() -> None:
    shapes = Shapes()
    for number in range(2 * head._MOST_SHAPES):
        read(shapes, [(b"Host", b"a"), (b"n%d" % number, b"")], b"1.1", 0)
        assert 0 < len(shapes) <= head._MOST_SHAPES
    shapes.clear()
    read(shapes, [(b"Host", b"a"), (b"n" * head._LONGEST_SHAPE, b"")], b"1.1", 0)
    read(shapes, [(b"Host", b"a"), (b"Accept", b"")], b"1.1", 0, is_unknown=True)
    assert not shapes


def test_patterns_are_compiled_rarely_however_many_orders_of_names_a_caller_sends() -> None:
    """Compiling one takes milliseconds, and calls that are refused count too."""
    shapes = Shapes(60.0)
    for number in range(20):
        read(shapes, [(b"Host", b"a"), (b"n%d" % number, b"")], b"1.1", 0)
    known = [shape for shape in shapes.values() if shape is not None]
    for shape in known * 4:
        shapes.learn(shape)
    assert sum(shape.match is not head._never for shape in known) == 1
