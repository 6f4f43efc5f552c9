"""Turns failures of MLflow, object stores and the operating system into errors without secrets."""

import base64
import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any
from urllib.parse import quote

from .errors import BusyError, NotFoundError, RefusedError, TidegateError, UnfinishedError, UnreachableError, UsageError

_SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
_OWNER = re.compile(r"^([^/]*//)?[^/]*@")
_WHO = re.compile(r"://[^\s/]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
_TRIED = re.compile(r"too many (\d{3}) error responses")
"""The status that MLflow's client received repeatedly."""
_PAIRS = re.compile(r"[?#][^\s=?#]*=\S*")
"""A query without its host, as in messages of Python's HTTP libraries."""
_MANY = 400


def plain(error: Exception) -> str:
    """Return the reason why a file could not be read, without Python's terms."""
    match error:
        case JSONDecodeError():
            return f"line {error.lineno}, column {error.colno}: {error.msg}"
        case UnicodeDecodeError():
            return "not valid UTF-8"
        case RecursionError():
            return "nested too deeply"
        case OSError():
            return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return str(error)


def shown(url: str) -> str:
    """Return a URL, even a malformed one, without possible secrets: user names, passwords, signed queries."""
    return _OWNER.sub(r"\1", re.split("[?#]", url.strip(), maxsplit=1)[0])


def scrubbed(text: str) -> str:
    """Return a foreign text as one line, without secrets and cut to a length that fits in a message."""
    text = _PAIRS.sub("", _QUERY.sub(r"\1", _WHO.sub("://", text)))
    for name, value in os.environ.items():
        if _SECRET_VARIABLE.search(name) and not name.endswith(("_FILE", "_PATH", "_URI", "_URL")):
            for form in _forms(value):
                text = text.replace(form, "***")
    line = " ".join(text.split())
    return line if len(line) <= _MANY else f"{line[:_MANY]} …"


def _forms(secret: str) -> list[str]:
    """Return the forms of a secret in messages, longest first: whole, single lines, as repr, quoted for URLs."""
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    basic = base64.b64encode(f"{user}:{secret}".encode(errors="replace")).decode()
    lines = [secret, secret.strip(), *(line.strip() for line in secret.splitlines())]
    forms = {basic, *lines}
    for line in lines:
        forms |= {repr(line)[1:-1], quote(line, ""), quote(line)}
    return sorted((form for form in forms if len(form) >= 6), key=len, reverse=True)


_LATER = "try again later"
_STATUSES: dict[int, tuple[type[TidegateError], str]] = {
    401: (RefusedError, "sign in again or renew it (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD), "
          "and run the same command again"),
    403: (RefusedError, "get the permission from the registry's owner. An expired credential can also cause this"),
    404: (NotFoundError, ""),
    429: (BusyError, _LATER),
    503: (BusyError, _LATER),
}  # fmt: skip
"""The error of an HTTP status, and its remedy."""


def from_status(status: int, what: str, where: str, why: str = "") -> TidegateError:
    """Return the error for an HTTP status that is not a success."""
    why = scrubbed(why)
    status_text = f"HTTP {status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        status_text, why = f"{status_text}: the credential is missing, wrong or expired", f" ({why})" if why else ""
    elif why:
        why = f": {why}"
    is_ours = 400 <= status < 500
    other = (UsageError, "") if is_ours else (UnreachableError, "try again. If it still fails, read the server's log")
    kind, do = _STATUSES.get(status, other)
    return kind(what, where=where, why=status_text + why, do=do)


@contextmanager
def translated(what: str, where: str) -> Iterator[None]:
    """Turn the exceptions of MLflow's client into TidegateError. `what` failed, at `where`."""
    from mlflow.exceptions import MlflowException, RestException
    from requests import HTTPError, RequestException

    try:
        yield
    except HTTPError as error:
        response: Any = error.response
        raise from_status(response.status_code, what, where, message(response)) from None
    except MlflowException as error:
        status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
        if status == 500 and re.search("API request to .* failed with (timeout )?exception", error.message):
            if tried := _TRIED.search(error.message):
                raise from_status(int(tried[1]), what, where) from None
            raise unreachable(what, where, error.message) from None
        if isinstance(error, RestException) or "API request to" in error.message:
            raise from_status(status, what, where, error.message) from None
        # The client itself raised it: no server sent that status.
        kind, do = _STATUSES.get(status, (UsageError if status < 500 else UnreachableError, ""))
        raise kind(what, where=where, why=scrubbed(error.message), do=do) from None
    except (RequestException, ConnectionError, TimeoutError) as error:
        raise unreachable(what, where, str(error)) from None
    except ValueError as error:
        do = "check the address and the other MLFLOW_ variables"
        raise UsageError(what, where=where, why=scrubbed(str(error)), do=do) from None


def message(response: Any) -> str:
    """Return the message in a response of MLflow's server. Empty if the response is not MLflow's."""
    try:
        document = response.json()
        return str(document.get("message", "")) if isinstance(document, dict) else ""
    except (ValueError, OSError):
        return ""


_PLAIN = {
    "NameResolutionError|Failed to resolve|Name or service not known": "the host name cannot be resolved",
    "Connection refused": "connection refused: no server listens there",
    "timed out|TimeoutError": "timed out",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "SSLError|SSL: ": "it does not use TLS, or uses another version of it",
    "RemoteDisconnected|Connection aborted|Connection reset": "the connection was interrupted",
    "No route to host|Network is unreachable": "there is no network route to it",
}
"""Patterns in messages of Python's HTTP libraries, and plain words for them. The first match counts."""


def unreachable(what: str, where: str, why: str) -> UnreachableError:
    """Return the error for a connection that could not be opened or was interrupted."""
    do = "check the address (MLFLOW_TRACKING_URI) and the network, then run the same command again"
    plain = next((words for pattern, words in _PLAIN.items() if re.search(pattern, why)), "")
    return UnreachableError(what, where=where, why=plain or scrubbed(why), do=do)


_AGAIN = "run the same command again"
_Explanation = tuple[type[TidegateError], str, str]  # the kind of error, what is wrong, the remedy
_NO_SPACE: _Explanation = (
    UnfinishedError, "no space is left. The served versions are unchanged",
    f"free space (tidegate prune), then {_AGAIN}",
)  # fmt: skip
_FORBIDDEN: _Explanation = RefusedError, "no write permission for the repository", "get it from the owner of the volume"
_OF_FILES: dict[int | None, _Explanation] = {
    errno.ENOSPC: _NO_SPACE, errno.EDQUOT: _NO_SPACE,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.EROFS: _FORBIDDEN,
    errno.EXDEV: (RefusedError, "files cannot be renamed into the repository, so publishing would not be atomic",
                  "set the repository's path to a subdirectory of the dataset, on the same file system"),
}  # fmt: skip
_OF_VOLUME: _Explanation = (
    UnreachableError, "the volume of the repository failed. The served versions are unchanged",
    f"check that the volume is mounted, then {_AGAIN}",
)  # fmt: skip


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn OSError of a repository's files into TidegateError."""
    try:
        yield
    except OSError as error:
        kind, what, do = _OF_FILES.get(error.errno, _OF_VOLUME)
        raise kind(what, where=where, why=plain(error), do=do) from error


_CODE = re.compile(r"<(Code|Message)>([^<]*)<")
"""The reason in an S3 error. `of_store` shows nothing else of the response, because it may contain tokens."""
_STATUS = re.compile(r"status code: (\d{3}[^:<]*)")
_STORES: dict[str, _Explanation] = {
    r"NoSuchKey|Not ?Found|\b404\b": (NotFoundError, "the object does not exist", ""),
    r"AccessDenied|Access Denied|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|\b403\b": (
        RefusedError, "the object store refused the request",
        f"renew the credentials of the store, or grant them read and write access to the bucket, then {_AGAIN}"),
    r"Expired|Unauthori[sz]ed|InvalidToken|NoCredentials|locate credentials|security token|\b401\b": (
        RefusedError, "the object store refused the credentials",
        f"renew the credentials of the store, then {_AGAIN}"),
}  # fmt: skip
"""Patterns in an object store's errors, their meaning and remedy. The first match counts."""


def of_store(error: Exception, where: str, what: str = "") -> TidegateError:
    """Return the error for an exception of an object store's client. `what` failed, if that is known."""
    status = getattr(error, "get_http_status_code", None)  # MLflow's errors have it
    text = str(error) if status is None else f"HTTP {status()}: {error}"
    codes = [found[2] for found in _CODE.finditer(text)] or [found[1].strip() for found in _STATUS.finditer(text)]
    # obstore's errors contain the whole request. Those of the clouds' own libraries are one sentence.
    is_safe = type(error).__module__.startswith(("botocore", "boto3", "google", "azure", "mlflow"))
    why = ": ".join(codes) or (scrubbed(text) if is_safe else type(error).__name__)
    for pattern, (kind, otherwise, do) in _STORES.items():
        if re.search(pattern, why):
            return kind(what or otherwise, where=where, why=why, do=do)
    do = f"check that the bucket exists and its address is right, then {_AGAIN}"
    return UnreachableError(what or "the object store failed", where=where, why=why, do=do)
