"""Problems: the responses with which the proxy itself ends a call (RFC 9457).

A problem's `type` is stable, so programs can rely on it. Errors of Triton pass through and are not problems.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

TYPE_ROOT = "https://tidegate.dev/problems/"
CONTENT_TYPE = "application/problem+json"
TWO_CREDENTIALS = "The request has more than one credential. Send only one."
AGAIN_SECONDS = 1.0  # `Retry-After` if the proxy does not know how long the cause lasts.


class TableError(Exception):
    """A table or a directory of keys is invalid. The text has one line and never contains a key."""


class ProblemType(Enum):
    """Every problem: its name in `type`, HTTP status, gRPC status (google.rpc.Code) and title."""

    MALFORMED = ("malformed", 400, 3, "The request is invalid")
    UNAUTHENTICATED = ("unauthenticated", 401, 16, "Not authenticated")
    DENIED = ("denied", 403, 7, "Permission denied")
    UNKNOWN = ("unknown", 404, 5, "Not found")
    METHOD = ("method-not-allowed", 405, 12, "Method not allowed")
    SLOW = ("request-timeout", 408, 4, "The request arrived too slowly")
    TOO_LONG = ("too-large", 413, 11, "The request is too large")
    HEADERS = ("headers-too-large", 431, 11, "The request headers are too large")
    LOAD_FAILED = ("load-failed", 424, 9, "The model could not be loaded")
    RATE_LIMITED = ("rate-limited", 429, 8, "Too many requests")
    INTERNAL = ("internal", 500, 13, "Internal error of the proxy")
    UPSTREAM = ("upstream-failed", 502, 14, "The inference server did not respond")
    BUSY = ("busy", 503, 14, "Busy, try again later")
    FULL = ("full", 503, 8, "The proxy's buffer limit is reached")
    DEADLINE = ("deadline-exceeded", 504, 4, "No response in time")
    NEVER_FITS = ("never-fits", 507, 9, "The model is larger than the server's memory")

    def __init__(self, word: str, status: int, grpc_status: int, title: str) -> None:
        self.word = word
        self.status = status
        self.grpc_status = grpc_status
        self.title = title


@dataclass(slots=True)
class Problem(Exception):
    """Ends a call. `detail` states the cause and the remedy, and never contains a credential or a tensor."""

    type: ProblemType
    detail: str
    retry_after: float | None = None  # Seconds after which a retry can succeed.
    allow: str | None = None  # The method that the address accepts, with METHOD.
    reason: str = ""
    """The cause in one word for programs. For BUSY, one of the reasons in docs/proxy-api.md."""
    replica: str = ""  # The replica that refused the call, if the call was at none.

    @property
    def why(self) -> str:
        """The reason in one word. The type's word if there is no finer one."""
        return self.reason or self.type.word

    def body(self, request_id: str) -> bytes:
        problem: dict[str, Any] = {
            "type": TYPE_ROOT + self.type.word,
            "title": self.type.title,
            "status": self.type.status,
            "detail": self.detail,
            "requestId": request_id,
            "error": self.detail,  # where clients of Triton look for it
        }
        if self.reason:
            problem["reason"] = self.reason
        if self.retry_after is not None:
            problem["retryAfterSeconds"] = round(self.retry_after, 3)
        return msgspec.json.encode(problem)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that belong to the problem, except type and length."""
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % max(1, -int(-self.retry_after // 1))))
        if self.type is ProblemType.UNAUTHENTICATED:
            found.append((b"www-authenticate", b'Bearer realm="tidegate"'))
        if self.allow:
            found.append((b"allow", self.allow.encode()))
        return found


def other_protocol(server: str) -> Problem:
    """Return the problem of a call that uses the protocol of another kind of server."""
    return Problem(ProblemType.UNKNOWN, f"The server {server} does not speak this protocol.")


def no_answer(seconds: float) -> str:
    """Return the detail of a problem: a server did not respond within so many seconds."""
    return f"No response within {seconds:g} s."


def still_loading(seconds: float) -> Problem:
    """Return the problem of a call whose time ended before its model was loaded. No work was done."""
    why = f"The model was not loaded within {seconds:g} s, but may be soon."
    return Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="loading")


def lost(model: str) -> Problem:
    """Return the problem of a call whose replica turned out to have lost the model."""
    why = f"The inference server has just lost the model {model}, which must be loaded again."
    return Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="lost")
