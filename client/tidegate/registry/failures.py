"""What MLflow and the artifact stores say when something fails, as one of our errors, with no secret in it."""

import base64
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote, urlsplit, urlunsplit

from ..errors import BusyError, NotFoundError, RefusedError, TidegateError, UnreachableError, UsageError

_SECRET_VARIABLE = re.compile(r"TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY|CREDENTIAL", re.IGNORECASE)
_WHO = re.compile(r"://[^\s/]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
_PAIRS = re.compile(r"[?#][^\s=?#]*=\S*")
"""A query without the host that it is of, as Python's HTTP libraries tell it."""
_MANY = 400


def shown(url: str) -> str:
    """Return a URL without what may be secret in it: names, passwords, signed queries."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


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
    forms = {
        basic,
        *lines,
        *(repr(each)[1:-1] for each in lines),
        *(quote(each, safe) for each in lines for safe in ("", "/")),
    }
    return sorted((form for form in forms if len(form) >= 6), key=len, reverse=True)


def from_status(status: int, what: str, where: str, why: str = "") -> TidegateError:
    """Return the error for an HTTP status that is no success."""
    why = scrubbed(why)
    said = f"HTTP {status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else f"HTTP {status}"
    if status == HTTPStatus.UNAUTHORIZED:
        return RefusedError(
            what,
            where=where,
            why=f"{said}: the credential is missing, wrong or expired{f' ({why})' if why else ''}",
            do="sign in again or renew it (MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD), and run "
            "the same command: it goes on from here",
        )
    if status == HTTPStatus.FORBIDDEN:
        return RefusedError(
            what,
            where=where,
            why=f"{said}{f': {why}' if why else ''}",
            do="ask whoever runs the registry for the permission; an expired credential may be told so too",
        )
    why = f"{said}{f': {why}' if why else ''}"
    if status == HTTPStatus.NOT_FOUND:
        return NotFoundError(what, where=where, why=why)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return BusyError(what, where=where, why=why, do="try again in a while: it goes on from here")
    if 400 <= status < 500:
        return UsageError(what, where=where, why=why)
    return UnreachableError(what, where=where, why=why, do="try again; if it stays so, look at the server's log")


@contextmanager
def translated(what: str, where: str) -> Iterator[None]:
    """Turn whatever MLflow's client raises into one of our errors, which says what was being done and where."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        code = error.error_code
        if code == "RESOURCE_DOES_NOT_EXIST":
            raise NotFoundError(what, where=where, why=scrubbed(error.message)) from None
        status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
        if status == 500 and "API request to" in error.message and "failed with exception" in error.message:
            raise unreachable(what, where, error.message) from None
        raise from_status(status, what, where, error.message) from None
    except OSError as error:  # requests' errors are OSErrors, and so are sockets'
        raise unreachable(what, where, str(error)) from None
    except ValueError as error:
        do = "see that the address and the other MLFLOW_ variables are right"
        raise UsageError(what, where=where, why=scrubbed(str(error)), do=do) from None


_PLAIN = (
    (re.compile(r"NameResolutionError|Failed to resolve|Name or service not known"), "there is no host of this name"),
    (re.compile(r"Connection refused"), "nothing listens there: the connection is refused"),
    (re.compile(r"timed out|TimeoutError"), "it does not answer in time"),
    (re.compile(r"CERTIFICATE_VERIFY_FAILED"), "its certificate is not believed"),
    (re.compile(r"SSLError|SSL: "), "it does not speak TLS, or not of this version"),
    (re.compile(r"RemoteDisconnected|Connection aborted|Connection reset"), "the connection was cut"),
    (re.compile(r"No route to host|Network is unreachable"), "there is no way to it from here"),
)
"""What the words of Python's HTTP libraries, with their pools and objects, mean to people; the first that is found."""


def _plain(said: str) -> str:
    return next((words for pattern, words in _PLAIN if pattern.search(said)), "")


def unreachable(what: str, where: str, why: str) -> UnreachableError:
    """Return the error for a connection that cannot be made, or breaks."""
    return UnreachableError(
        what,
        where=where,
        why=_plain(why) or scrubbed(why),
        do="see that the address is right (MLFLOW_TRACKING_URI) and reached from here, and run the same command again",
    )
