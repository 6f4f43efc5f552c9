"""How a problem is told over gRPC: status, message, and details that programs can rely on (google.rpc.Status)."""

import base64
import re
from functools import cache

from ..problems import Kind, Problem
from .heads import literal
from .protobuf import integer, text

DOMAIN = b"tidegate.dev"
_TYPES = b"type.googleapis.com/google.rpc."
_ENCODED = re.compile(rb"[^ -$&-~]")
OK_HEAD = b"\x88" + literal(b"content-type", b"application/grpc")
"""The first headers of an answer of the proxy's own: status 200, in HTTP's sense."""


def trailers(problem: Problem) -> bytes:
    """Return the headers that end a call with a problem."""
    code, message = problem.kind.grpc_status, problem.detail.encode()
    block = literal(b"grpc-status", b"%d" % code) + literal(b"grpc-message", _percent(message))
    said = base64.b64encode(_status(problem, code, message)).rstrip(b"=")
    return block + literal(b"grpc-status-details-bin", said)


def plain_trailers(code: int, message: str = "") -> bytes:
    """Return the headers that end a call with a status, and perhaps a message."""
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
