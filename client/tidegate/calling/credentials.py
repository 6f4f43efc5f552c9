"""The caller's credential: an API key, a token, or that of a Domino run or endpoint. It is never shown.

The first one of these counts: `TIDEGATE_API_KEY`, `TIDEGATE_TOKEN`, `TIDEGATE_TOKEN_FILE`, the token of the Domino
run, and `DOMINO_USER_API_KEY`, which Domino deprecates. The run's token comes from `DOMINO_API_PROXY`, or from
localhost:8899 in a run without that variable.
"""

import base64
import binascii
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from urllib3.util import parse_url

from ..errors import UnreachableError, UsageError
from .transport import Transport

API_KEY: Final = "TIDEGATE_API_KEY"
TOKEN: Final = "TIDEGATE_TOKEN"
TOKEN_FILE: Final = "TIDEGATE_TOKEN_FILE"
DOMINO_PROXY: Final = "DOMINO_API_PROXY"
DOMINO_KEY: Final = "DOMINO_USER_API_KEY"
DOMINO_DEFAULT: Final = "http://localhost:8899"
_IN_DOMINO: Final = ("DOMINO_RUN_ID", "DOMINO_PROJECT_ID", "DOMINO_PROJECT_NAME")
"""Domino sets at least one of these variables wherever it runs something."""
_ACCESS_TOKEN: Final = "/access-token"
_PAUSE_SECONDS: Final = 0.5  # between tries if the service does not respond
_HOLD_SECONDS: Final = 60.0
"""How long a token without an expiry is used."""
_EARLY_SECONDS: Final = 30.0  # A token is renewed this long before it expires, or at half of its time if that is less.
_SENDABLE: Final = re.compile(r"[\x21-\x7e]+")
_MOST_BYTES: Final = 65536


class Credential:
    """The header that identifies the caller. Without one, the proxy treats the caller as unauthenticated."""

    def __init__(self, source: str = "nowhere", header: tuple[str, str] | None = None) -> None:
        self.source, self._header = source, header

    def header(self, seconds: float | None = None) -> tuple[str, str] | None:  # noqa: ARG002
        """Return the header, or None, within so many seconds. Raises UsageError, UnreachableError."""
        return self._header

    def renew(self) -> bool:
        """Forget a cached credential that was refused. Returns whether there may be a newer one."""
        return False


class TokenFile(Credential):
    """A token in a file that is refreshed, such as a projected service account token."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(TOKEN_FILE)
        self._path = Path(path)

    def header(self, seconds: float | None = None) -> tuple[str, str] | None:  # noqa: ARG002
        """Return the header with the current content of the file. Raises UsageError."""
        try:
            with self._path.open("rb") as file:
                token = file.read(_MOST_BYTES).decode("utf-8", "replace").strip()
        except OSError as error:
            where = f"{TOKEN_FILE} ({self._path})"
            raise UsageError("the token cannot be read", where=where, why=error.strerror or str(error)) from None
        return _bearer(TOKEN_FILE, token)

    def renew(self) -> bool:
        return True  # each call reads the file


class DominoToken(Credential):
    """The token of a Domino run, from the run's own token service. It is renewed before it expires."""

    def __init__(self, url: str, seconds: float = 3.0) -> None:
        super().__init__("Domino's access token")
        self._seconds = seconds
        parts = parse_url(url if "://" in url else f"http://{url}")
        base = parts._replace(auth=None).url.rstrip("/")  # without a password, which must not be shown
        self._url = base + _ACCESS_TOKEN
        self._transport = Transport(base)
        self._lock = threading.Lock()
        self._until = 0.0

    def header(self, seconds: float | None = None) -> tuple[str, str] | None:
        """Return the header. Sends at most one request at a time. Raises UnreachableError, UsageError."""
        end = time.monotonic() + min(self._seconds, self._seconds if seconds is None else seconds)
        if not self._lock.acquire(timeout=max(end - time.monotonic(), 0.0)):
            raise self._unavailable("another call is waiting for it")
        try:
            if self._header is None or time.monotonic() >= self._until:
                token = self._fetch(end)
                self._header = _bearer(self.source, token)
                left = _seconds_left(token)
                good = _HOLD_SECONDS if left is None else max(left - _EARLY_SECONDS, left / 2)
                self._until = time.monotonic() + good
            return self._header
        except UnreachableError:
            if self._header is not None and time.monotonic() < self._until + _EARLY_SECONDS:
                return self._header  # it is still valid for a short time
            raise
        finally:
            self._lock.release()

    def renew(self) -> bool:
        with self._lock:
            self._header = None
        return True

    def _fetch(self, end: float) -> str:
        while True:
            try:
                response = self._transport.ask("GET", _ACCESS_TOKEN, (), {}, end)
            except UnreachableError as error:
                if time.monotonic() + _PAUSE_SECONDS >= end:
                    raise self._unavailable(error.why or error.what) from None
                time.sleep(_PAUSE_SECONDS)  # The service may start a moment later than the run's first call.
                continue
            if response.status != 200:
                raise self._unavailable(f"its status is {response.status}")
            return bytes(response.body[:_MOST_BYTES]).decode("utf-8", "replace").strip()

    def _unavailable(self, why: str) -> UnreachableError:
        do = f"try again, or outside Domino set {API_KEY} or {TOKEN}"
        return UnreachableError("Domino's token service returned no token", where=self._url, why=why, do=do)


def find_credential(environ: Mapping[str, str] = os.environ) -> Credential:
    """Return the first credential in the order of the module's docstring, or an empty one."""
    variables = {name: environ.get(name, "").strip() for name in (API_KEY, TOKEN, TOKEN_FILE, DOMINO_PROXY, DOMINO_KEY)}
    if key := variables[API_KEY]:
        return Credential(API_KEY, ("X-API-Key", _sendable(API_KEY, key)))
    if token := variables[TOKEN]:
        return Credential(TOKEN, _bearer(TOKEN, token))
    if path := variables[TOKEN_FILE]:
        return TokenFile(path)
    if url := variables[DOMINO_PROXY]:
        return DominoToken(url)
    if key := variables[DOMINO_KEY]:
        return Credential(DOMINO_KEY, ("X-Domino-Api-Key", _sendable(DOMINO_KEY, key)))
    return DominoToken(DOMINO_DEFAULT) if any(environ.get(name) for name in _IN_DOMINO) else Credential()


def _bearer(source: str, token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {_sendable(source, token)}"


def _sendable(source: str, secret: str) -> str:
    """Return a secret that is valid in a header. Raises UsageError, which does not show it."""
    if not _SENDABLE.fullmatch(secret):
        why = "it is empty" if not secret else "it contains spaces, line breaks or non-ASCII characters"
        raise UsageError("not a valid credential", where=source, why=why)
    return secret


def _seconds_left(token: str) -> float | None:
    """Return the seconds until a token expires (`exp`, RFC 7519), or None if it has no expiry."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"]) - time.time()
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
