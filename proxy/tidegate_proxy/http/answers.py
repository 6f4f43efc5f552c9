"""Serialise the responses that the proxy creates itself."""

from collections.abc import Iterable
from http import HTTPStatus

from ..problems import CONTENT_TYPE, Problem

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
STATUS_LINES = {status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode() for status in range(100, 1000)}


def whole_answer(
    status: int,
    media_type: str,
    body: bytes,
    request_id: bytes,
    *,
    keep_alive: bool,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> tuple[bytes, bytes]:
    """Return the head and the body of a response whose body is complete."""
    head = [
        STATUS_LINES[status],
        b"content-type: ", media_type.encode(), b"\r\nx-request-id: ", request_id, b"\r\n",
        b"content-length: %d\r\n" % len(body),
    ]  # fmt: skip
    for name, value in headers:
        head += (name, b": ", value, b"\r\n")
    head.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(head), body


def problem_answer(
    problem: Problem, request_id: bytes, *, keep_alive: bool, content: tuple[str, bytes] | None = None
) -> tuple[bytes, bytes]:
    """Return a problem's head and body: RFC 9457's JSON, or the media type and body of `content`."""
    media_type, body = content or (CONTENT_TYPE, problem.body(request_id.decode()))
    status, headers = problem.type.status, problem.headers()
    return whole_answer(status, media_type, body, request_id, keep_alive=keep_alive, headers=headers)
