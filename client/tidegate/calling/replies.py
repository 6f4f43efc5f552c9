"""What the proxy and Triton answer: replies, and errors that people understand.

The proxy's problems are RFC 9457 (docs/proxy-api.md, "Problems"); Triton's own errors are `{"error": "…"}`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..errors import (
    BusyError,
    LoadFailedError,
    NotFoundError,
    RefusedError,
    TidegateError,
    UnreachableError,
    UsageError,
)

PROBLEM: Final = "application/problem+json"
_MOST_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer: status, headers and body."""

    status: int
    headers: Mapping[str, str]  # their names are in lower case
    body: bytearray | bytes

    def json(self) -> Any:
        """Return what the body says; None for what is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


_SAID: Final[dict[str, tuple[type[TidegateError], str, str]]] = {
    "malformed": (UsageError, "the proxy cannot understand the request", ""),
    "unauthenticated": (RefusedError, "the proxy does not believe the credential",
                        "see that it is whole and of this platform, or get a new one: it may have ended"),
    "denied": (RefusedError, "you may not do this", "ask the platform's admin for the rule that is named"),
    "unknown": (NotFoundError, "the proxy knows nothing of this name, or nothing that you may see",
                "look at the spelling, or ask the platform's admin for an access rule"),
    "method-not-allowed": (UsageError, "this address takes another method", "see whether it is the proxy's"),
    "request-timeout": (UnreachableError, "the request came too slowly", "try again"),
    "too-large": (UsageError, "the request is larger than the proxy takes", "send less at once"),
    "headers-too-large": (UsageError, "the request's headers are larger than the proxy takes",
                          "shorten the credential"),
    "load-failed": (LoadFailedError, "the model cannot be loaded",
                    "tell who owns the model; trying again does not help"),
    "rate-limited": (BusyError, "these are too many requests", "try again later"),
    "internal": (UnreachableError, "the proxy has a defect", "tell the platform's admin, with the request's id"),
    "upstream-failed": (UnreachableError, "the inference server did not answer",
                        "try again if doing the work twice does no harm"),
    "busy": (BusyError, "the server is busy", "try again later"),
    "full": (BusyError, "the proxy can hold no more at once", "send less at once, or try again later"),
    "deadline-exceeded": (UnreachableError, "there was no answer in time", "wait longer, or try again later"),
    "never-fits": (LoadFailedError, "the model is larger than the memory that it would get", "tell who owns the model"),
}  # fmt: skip
"""By the last word of the problem's type: docs/proxy-api.md has the table, and a test compares them."""
_WORDS: Final = {
    "invalid_api_key": "unauthenticated",
    "model_not_found": "unknown",
    "unknown_url": "unknown",
    "rate_limit_exceeded": "rate-limited",
}
"""The same word, by the code of OpenAI's API that stands for it."""
_FAILURES: Final = frozenset({500, 502, 504})


def retry_after(reply: Reply) -> float | None:
    """Return the seconds after which the proxy says to come again, which also says that nothing was done, or None."""
    if reply.status not in (429, 503):
        return None
    value = _object(reply).get("retryAfterSeconds") if is_problem(reply) else None
    if value is None:
        value = reply.headers.get("retry-after")
    try:
        seconds = float(value) if value is not None else math.nan
    except (TypeError, ValueError):
        return None  # a date, which the proxy does not write
    return None if math.isnan(seconds) else min(max(seconds, 0.0), 3600.0)


def is_failure(reply: Reply) -> bool:
    """Tell whether the answer says that the proxy, or what is behind it, does not work."""
    return reply.status in _FAILURES and (is_problem(reply) or not _object(reply).get("error"))


def error_of(reply: Reply, where: str, *, anonymous: bool = False) -> TidegateError:
    """Return the error that an answer other than 200 means; `anonymous` where no credential was sent."""
    document = _object(reply)
    word = str(document.get("type", "")).rpartition("/")[2]
    if not is_problem(reply):
        error = document.get("error", document.get("message"))
        if not isinstance(error, dict):
            return _of_triton(reply.status, error, where)
        # As OpenAI's API has it: where it is the proxy's own, the code tells the last word of the problem's type.
        code, document = str(error.get("code")), {"detail": error.get("message")}
        word = _WORDS.get(code, code)
        if word not in _SAID:
            return _of_triton(reply.status, document["detail"], where)
    kind, what, do = _SAID.get(word, (UnreachableError, f"the proxy answers {reply.status}", ""))
    why = _shown(document.get("detail"))
    if request_id := document.get("requestId"):
        why += f" (request {_shown(request_id)})"
    if word == "unauthenticated" and anonymous:
        what, do = "no credential was found", "set TIDEGATE_API_KEY or TIDEGATE_TOKEN; in Domino it is found by itself"
    if kind is BusyError:
        return BusyError(what, where=where, why=why, do=do, retry_after=retry_after(reply))
    return kind(what, where=where, why=why, do=do)


def _of_triton(status: int, error: object, where: str) -> TidegateError:
    if not isinstance(error, str):
        why, do = f"it answers {status}, with neither a problem nor an error of Triton's", "see whether it is the proxy"
        return UnreachableError("this does not answer as an inference proxy does", where=where, why=why, do=do)
    why = _shown(error)
    if status == 404:
        return NotFoundError("the inference server knows no such model or version", where=where, why=why)
    if status < 500:
        do = "`tidegate status MODEL` shows its inputs"
        return UsageError("the model refuses the request", where=where, why=why, do=do)
    return UnreachableError("the inference server failed", where=where, why=why, do="tell who owns the model")


def is_problem(reply: Reply) -> bool:
    """Tell whether the proxy itself says that something is wrong."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == PROBLEM


def _object(reply: Reply) -> dict[str, Any]:
    document = reply.json()
    return document if isinstance(document, dict) else {}


def _shown(text: object) -> str:
    """Return a text of the other side's as one line that a terminal can show."""
    plain = "".join(each if each.isprintable() else " " for each in str(text or ""))
    return plain[:_MOST_SHOWN]
