"""What MLflow, object stores and the operating system say when something fails, as errors without secrets."""

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
"""How MLflow's client tells the status that it has met again and again."""
_PAIRS = re.compile(r"[?#][^\s=?#]*=\S*")
"""A query without the host that it is of, as Python's HTTP libraries tell it."""
_MANY = 400


def plain(error: Exception) -> str:
    """Return why a file could not be read, in words that do not speak of Python."""
    match error:
        case JSONDecodeError():
            return f"line {error.lineno}, column {error.colno}: {error.msg}"
        case UnicodeDecodeError():
            return "it is no text in UTF-8"
        case RecursionError():
            return "too many things lie in one another"
        case OSError():
            return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return str(error)


def shown(url: str) -> str:
    """Return a URL, also one that is malformed, without what may be secret: names, passwords, signed queries."""
    return _OWNER.sub(r"\1", re.split("[?#]", url.strip(), maxsplit=1)[0])


def scrubbed(text: str) -> str:
    """Return a text of somebody else's without secrets, in one line, and not too long for a message."""
    text = _PAIRS.sub("", _QUERY.sub(r"\1", _WHO.sub("://", text)))
    for name, value in os.environ.items():
        if _SECRET_VARIABLE.search(name) and not name.endswith(("_FILE", "_PATH", "_URI", "_URL")):
            for form in _forms(value):
                text = text.replace(form, "***")
    line = " ".join(text.split())
    return line if len(line) <= _MANY else f"{line[:_MANY]} …"


def _forms(secret: str) -> list[str]:
    """Return how messages may have a secret, the longest first: whole, as Python shows it, as URLs do, or a line."""
    user = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    basic = base64.b64encode(f"{user}:{secret}".encode(errors="replace")).decode()
    lines = [secret, secret.strip(), *(line.strip() for line in secret.splitlines())]
    forms = {basic, *lines}
    for line in lines:
        forms |= {repr(line)[1:-1], quote(line, ""), quote(line)}
    return sorted((form for form in forms if len(form) >= 6), key=len, reverse=True)


_LATER = "try again in a while"
_STATUSES: dict[int, tuple[type[TidegateError], str]] = {
    401: (RefusedError, "sign in again or renew it (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD), "
          "and run the same command again"),
    403: (RefusedError, "ask whoever runs the registry for the permission; an expired credential may be told so too"),
    404: (NotFoundError, ""),
    429: (BusyError, _LATER),
    503: (BusyError, _LATER),
}  # fmt: skip
"""What people know a status as, and what to do about it."""


def from_status(status: int, what: str, where: str, why: str = "") -> TidegateError:
    """Return the error for an HTTP status that is no success."""
    why = scrubbed(why)
    status_text = f"HTTP {status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        status_text, why = f"{status_text}: the credential is missing, wrong or expired", f" ({why})" if why else ""
    elif why:
        why = f": {why}"
    is_ours = 400 <= status < 500
    other = (UsageError, "") if is_ours else (UnreachableError, "try again; if it stays so, look at the server's log")
    kind, do = _STATUSES.get(status, other)
    return kind(what, where=where, why=status_text + why, do=do)


@contextmanager
def translated(what: str, where: str) -> Iterator[None]:
    """Turn whatever MLflow's client raises into one of our errors, which says what was being done and where."""
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
        # The client itself refused: no server answered that status.
        kind, do = _STATUSES.get(status, (UsageError if status < 500 else UnreachableError, ""))
        raise kind(what, where=where, why=scrubbed(error.message), do=do) from None
    except (RequestException, ConnectionError, TimeoutError) as error:
        raise unreachable(what, where, str(error)) from None
    except ValueError as error:
        do = "see that the address and the other MLFLOW_ variables are right"
        raise UsageError(what, where=where, why=scrubbed(str(error)), do=do) from None


def message(response: Any) -> str:
    """Return what MLflow's server says of an error; nothing where the answer is not MLflow's."""
    try:
        document = response.json()
        return str(document.get("message", "")) if isinstance(document, dict) else ""
    except (ValueError, OSError):
        return ""


_PLAIN = {
    "NameResolutionError|Failed to resolve|Name or service not known": "there is no host of this name",
    "Connection refused": "nothing listens there: the connection is refused",
    "timed out|TimeoutError": "it does not answer in time",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not believed",
    "SSLError|SSL: ": "it does not speak TLS, or not of this version",
    "RemoteDisconnected|Connection aborted|Connection reset": "the connection was cut",
    "No route to host|Network is unreachable": "there is no way to it from here",
}
"""What the words of Python's HTTP libraries, with their pools and objects, mean to people; the first that is found."""


def unreachable(what: str, where: str, why: str) -> UnreachableError:
    """Return the error for a connection that cannot be made, or breaks."""
    do = "see that the address is right (MLFLOW_TRACKING_URI) and reached from here, and run the same command again"
    plain = next((words for pattern, words in _PLAIN.items() if re.search(pattern, why)), "")
    return UnreachableError(what, where=where, why=plain or scrubbed(why), do=do)


_AGAIN = "run the same command again"
_Said = tuple[type[TidegateError], str, str]  # the kind of an error, what is wrong, and what to do about it
_NO_ROOM: _Said = (
    UnfinishedError, "there is no room left; what served before serves on",
    f"make room (tidegate prune), then {_AGAIN}",
)  # fmt: skip
_FORBIDDEN: _Said = RefusedError, "the repository cannot be written", "ask whoever owns the volume"
_OF_FILES: dict[int | None, _Said] = {
    errno.ENOSPC: _NO_ROOM, errno.EDQUOT: _NO_ROOM,
    errno.EACCES: _FORBIDDEN, errno.EPERM: _FORBIDDEN, errno.EROFS: _FORBIDDEN,
    errno.EXDEV: (RefusedError, "files cannot be renamed into the repository, so nothing can be published whole",
                  "give the repository a folder of its own below the dataset's root, on one file system with it"),
}  # fmt: skip
_OF_VOLUME: _Said = (
    UnreachableError, "the volume of the repository does not answer as it should; what served before serves on",
    f"see that the volume is there and mounted, then {_AGAIN}",
)  # fmt: skip


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn the errors of a repository's files within the block into TidegateError."""
    try:
        yield
    except OSError as error:
        kind, what, do = _OF_FILES.get(error.errno, _OF_VOLUME)
        raise kind(what, where=where, why=plain(error), do=do) from error


_CODE = re.compile(r"<(Code|Message)>([^<]*)<")
"""What an S3 says is wrong. Nothing else of its answer is shown by `of_store`: it may hold tokens."""
_STATUS = re.compile(r"status code: (\d{3}[^:<]*)")
_STORES: dict[str, _Said] = {
    r"NoSuchKey|Not ?Found|\b404\b": (NotFoundError, "there is no such object", ""),
    r"AccessDenied|Access Denied|Forbidden|InvalidAccessKey|SignatureDoesNotMatch|\b403\b": (
        RefusedError, "the object store refuses it",
        f"renew the credentials of the store, or see that they may read and write the bucket, then {_AGAIN}"),
    r"Expired|Unauthori[sz]ed|InvalidToken|NoCredentials|locate credentials|security token|\b401\b": (
        RefusedError, "the object store does not take the credentials",
        f"renew the credentials of the store, then {_AGAIN}"),
}  # fmt: skip
"""What an object store's answer means to people, and what to do about it; the first that is found."""


def of_store(error: Exception, where: str, what: str = "") -> TidegateError:
    """Return the error to show for one of an object store's client; `what` could not be done, where that is known."""
    status = getattr(error, "get_http_status_code", None)  # MLflow's errors have one
    text = str(error) if status is None else f"HTTP {status()}: {error}"
    codes = [found[2] for found in _CODE.finditer(text)] or [found[1].strip() for found in _STATUS.finditer(text)]
    # obstore's errors tell the whole request; those of the clouds' own libraries are a sentence.
    tells = type(error).__module__.startswith(("botocore", "boto3", "google", "azure", "mlflow"))
    why = ": ".join(codes) or (scrubbed(text) if tells else type(error).__name__)
    for pattern, (kind, otherwise, do) in _STORES.items():
        if re.search(pattern, why):
            return kind(what or otherwise, where=where, why=why, do=do)
    do = f"see that the bucket is there and its address is right, then {_AGAIN}"
    return UnreachableError(what or "the object store does not answer as it should", where=where, why=why, do=do)
