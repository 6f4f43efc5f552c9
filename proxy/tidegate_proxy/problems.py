"""What callers are told when the proxy itself cannot or will not do something (RFC 9457).

A problem's `type` is stable: programs may rely on it. Triton's own errors are passed on and are none of these.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

TYPE_ROOT = "https://tidegate.dev/problems/"
CONTENT_TYPE = "application/problem+json"
TWO_CREDENTIALS = "A request says once who sends it: leave one credential out."
AGAIN_SECONDS = 1.0  # Seconds that a caller is told to wait where it is not known how long it takes.


class TableError(Exception):
    """Says what is wrong with a table or a folder of keys, in one line; it never holds a key that stands there."""


class ProblemType(Enum):
    """Every problem: its name in `type`, HTTP status, gRPC status (google.rpc.Code) and title."""

    MALFORMED = ("malformed", 400, 3, "The request cannot be understood")
    UNAUTHENTICATED = ("unauthenticated", 401, 16, "Say who you are")
    DENIED = ("denied", 403, 7, "You may not do this")
    UNKNOWN = ("unknown", 404, 5, "There is nothing of this name")
    METHOD = ("method-not-allowed", 405, 12, "This address takes another method")
    SLOW = ("request-timeout", 408, 4, "The request came too slowly")
    TOO_LONG = ("too-large", 413, 11, "The request is too large")
    HEADERS = ("headers-too-large", 431, 11, "The request's headers are too large")
    LOAD_FAILED = ("load-failed", 424, 9, "The model could not be loaded")
    RATE_LIMITED = ("rate-limited", 429, 8, "Too many requests")
    INTERNAL = ("internal", 500, 13, "The proxy has a defect")
    UPSTREAM = ("upstream-failed", 502, 14, "The inference server did not answer")
    BUSY = ("busy", 503, 14, "Busy, try again")
    FULL = ("full", 503, 8, "The proxy can hold no more")
    DEADLINE = ("deadline-exceeded", 504, 4, "There was no answer in time")
    NEVER_FITS = ("never-fits", 507, 9, "The model is larger than the server's memory")

    def __init__(self, word: str, status: int, grpc_status: int, title: str) -> None:
        self.word = word
        self.status = status
        self.grpc_status = grpc_status
        self.title = title


@dataclass(slots=True)
class Problem(Exception):
    """Ends a call; `detail` says what and what to do, and never holds a credential or a tensor."""

    type: ProblemType
    detail: str
    retry_after: float | None = None  # Seconds after which it can succeed.
    allow: str | None = None  # Method that the address takes, with METHOD.
    reason: str = ""
    """Why, in one word for programs: with BUSY, one of docs/proxy-api.md, of which there are more than one."""
    replica: str = ""  # Which replica said so, where the call was at none.

    @property
    def why(self) -> str:
        """The reason, in one word: the type's own where there is no finer one."""
        return self.reason or self.type.word

    def body(self, request_id: str) -> bytes:
        """Return the JSON of RFC 9457."""
        said: dict[str, Any] = {
            "type": TYPE_ROOT + self.type.word,
            "title": self.type.title,
            "status": self.type.status,
            "detail": self.detail,
            "requestId": request_id,
            "error": self.detail,  # where clients of Triton look for it
        }
        if self.reason:
            said["reason"] = self.reason
        if self.retry_after is not None:
            said["retryAfterSeconds"] = round(self.retry_after, 3)
        return msgspec.json.encode(said)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that belong to it, besides type and length."""
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % max(1, -int(-self.retry_after // 1))))
        if self.type is ProblemType.UNAUTHENTICATED:
            found.append((b"www-authenticate", b'Bearer realm="tidegate"'))
        if self.allow:
            found.append((b"allow", self.allow.encode()))
        return found


def other_protocol(server: str) -> Problem:
    """Return what is told when a call is spelled as another kind of server has it."""
    return Problem(ProblemType.UNKNOWN, f"The server {server} does not speak this protocol.")


def no_answer(seconds: float) -> str:
    """Return the detail of a problem: a server gave no answer within so many seconds."""
    return f"There was no answer within {seconds:g} s."


def still_loading(seconds: float) -> Problem:
    """Return what is told when the time is up before the model is there: nothing was done yet."""
    why = f"The model was not loaded within {seconds:g} s; it may be soon."
    return Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="loading")


def lost(model: str) -> Problem:
    """Return what is told when a replica turns out to have lost a model that it had."""
    why = f"The inference server has just lost the model {model}; it is loaded anew."
    return Problem(ProblemType.BUSY, why, AGAIN_SECONDS, reason="lost")
