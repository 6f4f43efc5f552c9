"""A client of the inference proxy (docs/proxy-api.md). One object is safe for several threads.

All addresses are below `DOMINO_INFERENCE_PROXY`: no model name can lead out of it.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..errors import TidegateError, UnreachableError, UsageError
from ..names import RULE, SERVED_NAME_RULE, is_name
from .credentials import Credential, find_credential
from .replies import Reply, error_of, is_failure, is_problem, retry_after
from .retries import Deadline
from .tensors import HEADER_LENGTH, VERSION, Answer, Array, pack, unpack
from .transport import Body, NotSentError, TimeIsUpError, Transport

if TYPE_CHECKING:
    from tidegate_contracts.environments import WhoAmI
    from tidegate_contracts.whereabouts import Whereabouts

VARIABLE: Final = "DOMINO_INFERENCE_PROXY"
SECONDS: Final = 60.0  # default timeout of a call
_HTTP_SERVICE_PORT: Final = 80
"""The port of the proxy's Service without TLS. tidegate_contracts.proxy_process has it too, but imports pydantic."""
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_.~%-]+)*/*")
_FORM: Final = "host, host:port or URL, such as https://inference.example.com"
_MOST_TRIES: Final = 3  # Of requests that had no effect, unless the proxy sent a Retry-After.
_MARGIN: Final = 0.25  # The proxy's deadline is so many seconds before the caller's, so that its response arrives.
_CREDENTIALS: Final = ("Authorization", "X-API-Key", "X-Domino-Api-Key")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,15}")
_WORD: Final = re.compile(r"[0-9A-Za-z._-]{1,128}")
Version = int | str | None  # A number. None: the environment chooses, by its shares, its alias, or the newest.


def proxy_url(url: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the proxy's address as `scheme://host[:port][/path]`, without a slash at its end.

    The default scheme is HTTPS, except for port 80, the plain-HTTP port of the proxy's Service. So a missing scheme
    never exposes a credential. Raises UsageError, which does not show a password in the address.
    """
    where = "the proxy's address" if url is not None else VARIABLE
    text = (environ.get(VARIABLE, "") if url is None else url).strip()
    if not text:
        do = f"set {VARIABLE} to its {_FORM}"
        raise UsageError("the address of the inference proxy is not set", where=where, do=do)

    def wrong(why: str) -> UsageError:
        return UsageError("not an address of an inference proxy", where=where, why=why, do=f"write {_FORM}")

    has_scheme = "://" in text
    try:
        parts = urlsplit(text if has_scheme else f"//{text}")
        port = parts.port
    except ValueError:
        raise wrong("its port or its brackets are invalid") from None
    if "@" in parts.netloc:
        raise wrong("it contains a user or a password, which an address must not")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise wrong("it has a query or a fragment")
    if has_scheme and parts.scheme not in ("http", "https"):
        raise wrong(f"its scheme is {parts.scheme!r}, but only http and https are supported")
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc.removesuffix(":")
    if not _HOST.fullmatch(host):
        raise wrong("its host is missing or invalid")
    if not _PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        raise wrong("its path is invalid")
    scheme = parts.scheme if has_scheme else "http" if port == _HTTP_SERVICE_PORT else "https"
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{host.lower()}{'' if port in (None, default) else f':{port}'}{parts.path.rstrip('/')}"


def model_path(server: str | None, model: str | None, version: Version = None, tail: str = "") -> str:
    """Return the path of a model's resource, or of all models. Raises UsageError for an invalid name or version."""
    for name, what in ((server, "server"), (model, "model")):
        if name is not None and not is_name(name):
            raise UsageError(f"{name!r} is not a valid name of a {what}", do=RULE)
    if version is not None and (isinstance(version, bool) or not _NUMBER.fullmatch(str(version))):
        raise UsageError(
            f"{str(version)!r} is not a version", why="a version is a number from 1, without leading zeros"
        )
    at = "" if server is None else f"/servers/{server}"
    which = "" if version is None else f"/versions/{version}"
    return f"{at}/v2/models{'' if model is None else f'/{model}'}{which}{tail}"


def served_name(name: str) -> str:
    """Return a name by which OpenAI's clients may call a model. Raises UsageError if it is invalid."""
    from tidegate_contracts.openai import is_served_name  # client models are installed without it

    if not is_served_name(name):
        raise UsageError(f"{name!r} is not a valid name of a model", do=SERVED_NAME_RULE)
    return name


def _sticky(word: str | None) -> dict[str, str]:
    if word is not None and not _WORD.fullmatch(word):
        raise UsageError(f"{word!r} is not a sticky word", do="use 1 to 128 letters, digits, '.', '-' and '_'")
    return {} if word is None else {"tidegate-sticky": word}


class ProxyClient(AbstractContextManager["ProxyClient"]):
    """Calls and inspects models.

    Methods raise errors of `tidegate.errors`: `BusyError` if the proxy's Retry-After is later than the deadline,
    `UnreachableError` for failures. A request is retried if it surely had no effect (the response had a `Retry-After`,
    or there was no connection), or if it only reads.
    """

    def __init__(
        self,
        url: str | None = None,
        credential: Credential | None = None,
        *,
        seconds: float = SECONDS,
        waits: bool = True,
    ) -> None:
        """Open no connection yet. The defaults of the address and the credential are environment variables. `waits`:
        retry after the proxy's Retry-After. Otherwise a busy proxy is a BusyError immediately."""
        self.url = proxy_url(url)
        self.seconds, self._waits = seconds, waits
        self._credential = find_credential() if credential is None else credential
        self._transport = Transport(self.url)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def whoami(self) -> "WhoAmI":
        """Return the caller's name, groups and source at the proxy."""
        from tidegate_contracts.environments import WhoAmI  # imports pydantic, which calls do not need

        reply = self._request("GET", "/whoami")
        try:
            return WhoAmI.model_validate_json(bytes(reply.body))
        except ValueError:
            raise self._unexpected("/whoami") from None

    def ready(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> bool:
        """Return whether a call could be answered: the model is in memory or can be loaded."""
        path = model_path(server, model, version, "/ready")
        reply = self._request("GET", path, deadline=deadline, also=400)
        if is_problem(reply):
            raise error_of(reply, self.url + path)
        return reply.status == 200

    def metadata(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's metadata. Loads an on-demand model."""
        return self._json(model_path(server, model, version), deadline)

    def config(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's configuration, as completed by Triton. Loads an on-demand model."""
        return self._json(model_path(server, model, version, "/config"), deadline)

    def whereabouts(
        self, model: str | None = None, *, server: str | None = None, deadline: float | None = None
    ) -> "Whereabouts":
        """Return the state of a model, or of all that the caller may inspect, at every replica. Loads nothing."""
        from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Whereabouts

        model_path(server, None)  # raises UsageError for an invalid name
        path = f"{'' if server is None else f'/servers/{server}'}{WHEREABOUTS_PATH}"
        path += "" if model is None else f"/{served_name(model)}"
        try:
            return Whereabouts.model_validate(self._json(path, deadline))
        except ValueError:
            raise self._unexpected(path) from None

    def statistics(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> list[dict[str, Any]]:
        """Return `model_stats` of Triton's extension, by loaded version at a replica of each pool. Loads nothing."""
        path = model_path(server, model, version, "/stats")
        found = self._json(path, deadline).get("model_stats")
        if not isinstance(found, list) or not all(isinstance(each, dict) and "name" in each for each in found):
            raise self._unexpected(path)
        return found

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Array],
        parameters: Mapping[str, Any] | None = None,
        *,
        server: str | None = None,
        version: Version = None,
        sticky: str | None = None,
        deadline: float | None = None,
    ) -> Answer:
        """Call a model with arrays by the names of its inputs. Arrays are sent and received as bytes, uncopied. Calls
        with the same `sticky` word go to the same version while traffic is split among several."""
        path = model_path(server, model, version, "/infer")
        body, length = pack(inputs, parameters)
        headers = {HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"} | _sticky(sticky)
        return unpack(self._request("POST", path, body, headers, deadline), self.url + path)

    def infer_json(
        self,
        model: str,
        body: Mapping[str, Any],
        *,
        server: str | None = None,
        version: Version = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Call a model with the body of a v2 inference request as JSON. Returns Triton's response unchanged."""
        return self._json(model_path(server, model, version, "/infer"), deadline, body)

    def openai(
        self, call: str, body: Mapping[str, Any], *, server: str | None = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Call the model that the body names by OpenAI's API. `call` is `chat/completions`, `embeddings` … Does not
        stream. OpenAI's own client does: docs/openai.md."""
        where = model_path(server, None).removesuffix("/v2/models")
        return self._json(f"{where}/v1/{call}", deadline, body)

    def _json(self, path: str, deadline: float | None, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """GET a JSON object, or POST a JSON body and return the object in the response."""
        if body is None:
            reply = self._request("GET", path, deadline=deadline)
        else:
            headers = {"Content-Type": "application/json"}
            reply = self._request("POST", path, [_dumped(body)], headers, deadline)
        document = reply.json()
        if not isinstance(document, dict):
            raise self._unexpected(path)
        # If the response has no version, the proxy's header has the one that it chose.
        if "model_name" in document and not document.get("model_version") and VERSION in reply.headers:
            document["model_version"] = reply.headers[VERSION]
        return document

    def _request(
        self,
        method: str,
        path: str,
        body: Body = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        also: int = 200,
    ) -> Reply:
        """Return the response with status 200 or `also`, after retries. Raises the error of any other response."""
        until = Deadline(self.seconds if deadline is None else deadline)
        where = self.url + path
        tries, renewed = 0, False
        busy: TidegateError | None = None
        while True:
            tries += 1
            head = self._head(headers or {}, until)
            if until.left <= 0:
                raise TimeIsUpError("the request timed out", where=where, do="set a longer timeout, or try again later")
            try:
                reply = self._transport.ask(method, path, body, head, time.monotonic() + until.left)
            except UnreachableError as error:
                if busy is not None and until.left <= 0:
                    raise busy from None
                may = isinstance(error, NotSentError) or method == "GET"
                if may and tries < _MOST_TRIES and until.wait():
                    continue
                raise
            if reply.status in (200, also):
                return reply
            if reply.status == 401 and not renewed and self._credential.renew():
                renewed = True
                continue
            refusal = error_of(reply, where, anonymous=head.keys().isdisjoint(_CREDENTIALS))
            seconds = retry_after(reply)
            if seconds is not None:
                tries, busy = 0, refusal
                if self._waits and until.wait(seconds):
                    continue
            elif method == "GET" and is_failure(reply) and tries < _MOST_TRIES and until.wait():
                continue
            raise refusal

    def _head(self, headers: Mapping[str, str], until: Deadline) -> dict[str, str]:
        head = {"User-Agent": "tidegate", **headers}
        if (who := self._credential.header(max(until.left, 0.0))) is not None:
            head[who[0]] = who[1]
        left = until.left  # after the credential, which can take time
        head["request-timeout"] = f"{max(left - _MARGIN, left / 2, 0.001):.3f}"
        return head

    def _unexpected(self, path: str) -> UnreachableError:
        do = "check that the address is that of an inference proxy, and of this version"
        return UnreachableError("not a response of an inference proxy", where=self.url + path, do=do)


def _dumped(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError("the request cannot be sent as JSON", why=str(error)) from None
