"""Responses of the proxy and of Triton, and the errors that they mean.

The proxy's problems follow RFC 9457 (docs/proxy-api.md, "Problems"). Triton's own errors are `{"error": "…"}`.
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
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]  # names are in lower case
    body: bytearray | bytes

    def json(self) -> Any:
        """Return the parsed body, or None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


_PROBLEMS: Final[dict[str, tuple[type[TidegateError], str, str]]] = {
    "malformed": (UsageError, "the proxy cannot parse the request", ""),
    "unauthenticated": (RefusedError, "the proxy does not accept the credential",
                        "check that it is complete and of this platform, or renew it: it may have expired"),
    "denied": (RefusedError, "you have no permission for this", "request access from the platform admin"),
    "unknown": (NotFoundError, "the proxy has nothing of this name, or you have no access to it",
                "check the spelling, or request an access rule from the platform admin"),
    "method-not-allowed": (UsageError, "this address takes another method", "check that it is the proxy's"),
    "request-timeout": (UnreachableError, "the request arrived too slowly", "try again"),
    "too-large": (UsageError, "the request exceeds the proxy's size limit", "send fewer rows per request"),
    "headers-too-large": (UsageError, "the request's headers exceed the proxy's size limit",
                          "use a shorter credential"),
    "load-failed": (LoadFailedError, "the model cannot be loaded",
                    "contact the model's owner. Retrying does not help"),
    "rate-limited": (BusyError, "rate limit exceeded", "try again later"),
    "internal": (UnreachableError, "the proxy has a defect", "report it to the platform admin, with the request ID"),
    "upstream-failed": (UnreachableError, "the inference server did not respond",
                        "try again if repeating the work does no harm"),
    "busy": (BusyError, "the server is busy", "try again later"),
    "full": (BusyError, "the proxy's memory limit is reached", "send less at a time, or try again later"),
    "deadline-exceeded": (UnreachableError, "the request timed out", "set a longer timeout, or try again later"),
    "never-fits": (LoadFailedError, "the model is larger than the memory of its pool", "contact the model's owner"),
}  # fmt: skip
"""By the last word of the problem's type. docs/proxy-api.md has the table, and a test compares them."""
_WORDS: Final = {
    "invalid_api_key": "unauthenticated",
    "model_not_found": "unknown",
    "unknown_url": "unknown",
    "rate_limit_exceeded": "rate-limited",
}
"""The error codes of OpenAI's API for some of these words."""
_FAILURES: Final = frozenset({500, 502, 504})


def retry_after(reply: Reply) -> float | None:
    """Return the seconds of a Retry-After, which also means that the request had no effect. None without one."""
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
    """Return whether the response means that the proxy or a server behind it failed."""
    return reply.status in _FAILURES and (is_problem(reply) or not _object(reply).get("error"))


def error_of(reply: Reply, where: str, *, anonymous: bool = False) -> TidegateError:
    """Return the error for a response other than 200. `anonymous`: no credential was sent."""
    document = _object(reply)
    word = str(document.get("type", "")).rpartition("/")[2]
    if not is_problem(reply):
        error = document.get("error", document.get("message"))
        if not isinstance(error, dict):
            return _of_triton(reply.status, error, where)
        # In the format of OpenAI's API. If the error is the proxy's own, the code means a problem type.
        code, document = str(error.get("code")), {"detail": error.get("message")}
        word = _WORDS.get(code, code)
        if word not in _PROBLEMS:
            return _of_triton(reply.status, document["detail"], where)
    kind, what, do = _PROBLEMS.get(word, (UnreachableError, f"the proxy responded with status {reply.status}", ""))
    why = _shown(document.get("detail"))
    if request_id := document.get("requestId"):
        why += f" (request {_shown(request_id)})"
    if word == "unauthenticated" and anonymous:
        what, do = "no credential was found", "set TIDEGATE_API_KEY or TIDEGATE_TOKEN (in Domino this is automatic)"
    if kind is BusyError:
        return BusyError(what, where=where, why=why, do=do, retry_after=retry_after(reply))
    return kind(what, where=where, why=why, do=do)


def _of_triton(status: int, error: object, where: str) -> TidegateError:
    if not isinstance(error, str):
        why, do = f"status {status}, without a problem or an error of Triton", "check that the address is the proxy's"
        return UnreachableError("not a response of an inference proxy", where=where, why=why, do=do)
    why = _shown(error)
    if status == 404:
        return NotFoundError("the inference server has no such model or version", where=where, why=why)
    if status < 500:
        do = "run `tidegate status MODEL` to see its inputs"
        return UsageError("the model refused the request", where=where, why=why, do=do)
    return UnreachableError("the inference server failed", where=where, why=why, do="contact the model's owner")


def is_problem(reply: Reply) -> bool:
    """Return whether the response is an RFC 9457 problem of the proxy."""
    return reply.headers.get("content-type", "").partition(";")[0].strip().lower() == PROBLEM


def _object(reply: Reply) -> dict[str, Any]:
    document = reply.json()
    return document if isinstance(document, dict) else {}


def _shown(text: object) -> str:
    plain = "".join(each if each.isprintable() else " " for each in str(text or ""))
    return plain[:_MOST_SHOWN]
