"""How gRPC says how a call ended: status, message, and details that programs can rely on (google.rpc.Status)."""

import base64
import re
from functools import cache

from ..http2.headers import literal
from ..problems import Kind, Problem
from .protobuf import integer, text

DOMAIN = b"tidegate.dev"
_TYPES = b"type.googleapis.com/google.rpc."
_ENCODED = re.compile(rb"[^ -$&-~]")
STATUS_200 = b"\x88"
"""`:status 200`, which every answer of gRPC begins with (RFC 7541, appendix A)."""
OK_HEADERS = STATUS_200 + literal(b"content-type", b"application/grpc")
"""The headers of an answer of the proxy's own."""


def problem_trailers(problem: Problem) -> bytes:
    """Return the trailers that end a call with a problem."""
    code, message = problem.kind.grpc_status, problem.detail.encode()
    block = literal(b"grpc-status", b"%d" % code) + literal(b"grpc-message", _percent(message))
    said = base64.b64encode(_status(problem, code, message)).rstrip(b"=")
    return block + literal(b"grpc-status-details-bin", said)


def status_trailers(code: int, message: str = "") -> bytes:
    """Return the trailers that end a call with a status, and perhaps a message."""
    block = literal(b"grpc-status", b"%d" % code)
    return block + literal(b"grpc-message", _percent(message.encode())) if message else block


def _status(problem: Problem, code: int, message: bytes) -> bytes:
    status = integer(1, code) + text(2, message) + text(3, _error_info(problem.kind))
    if problem.retry_after is not None:
        whole, part = divmod(max(0, round(problem.retry_after * 1e9)), 1_000_000_000)
        delay = integer(1, whole) + integer(2, part)
        status += text(3, text(1, _TYPES + b"RetryInfo") + text(2, text(1, delay)))
    return status


@cache
def _error_info(kind: Kind) -> bytes:
    reason = kind.word.upper().replace("-", "_").encode()
    return text(1, _TYPES + b"ErrorInfo") + text(2, text(1, reason) + text(2, DOMAIN))


def _percent(message: bytes) -> bytes:
    return _ENCODED.sub(lambda found: b"%%%02X" % found[0][0], message)
