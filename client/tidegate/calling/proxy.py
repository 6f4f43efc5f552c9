"""The inference proxy, as its callers see it: docs/proxy-api.md. One object serves many threads.

Addresses are `DOMINO_INFERENCE_PROXY` and what is below it, which no name can climb out of.
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
SECONDS: Final = 60.0  # how long a call may take by default
_HTTP_SERVICE_PORT: Final = 80
"""Where the proxy's Service speaks plain HTTP; tidegate_contracts.proxy_process has it, which would bring pydantic."""
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?|\[[0-9A-Fa-f:.]+\]")
_PATH: Final = re.compile(r"(/[A-Za-z0-9_.~%-]+)*/*")
_FORM: Final = "host, host:port or URL, such as https://inference.example.com"
_MOST_TRIES: Final = 3  # of what surely did nothing, or does no harm, and met no proxy that said when to come again
_MARGIN: Final = 0.25  # The proxy's deadline is so many seconds before the caller's, so that its answer arrives.
_CREDENTIALS: Final = ("Authorization", "X-API-Key", "X-Domino-Api-Key")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,15}")
_WORD: Final = re.compile(r"[0-9A-Za-z._-]{1,128}")
Version = int | str | None  # Its number; None leaves it to the environment: its shares, its alias, or the newest.


def proxy_url(url: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the proxy's address as `scheme://host[:port][/path]`, without a slash at its end.

    Without a scheme it is HTTPS, unless the port is 80, at which the proxy's Service speaks plain HTTP: a credential is
    never sent in clear text for want of a word. Raises UsageError, which holds nothing of a password in the address.
    """
    where = "the proxy's address" if url is not None else VARIABLE
    text = (environ.get(VARIABLE, "") if url is None else url).strip()
    if not text:
        do = f"set {VARIABLE} to its {_FORM}"
        raise UsageError("it is not said where the inference proxy is", where=where, do=do)

    def wrong(why: str) -> UsageError:
        return UsageError("this is no address of an inference proxy", where=where, why=why, do=f"write {_FORM}")

    has_scheme = "://" in text
    try:
        parts = urlsplit(text if has_scheme else f"//{text}")
        port = parts.port
    except ValueError:
        raise wrong("its port or its brackets are wrong") from None
    if "@" in parts.netloc:
        raise wrong("it has a user or a password, which do not belong into an address")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise wrong("it has a query or a fragment")
    if has_scheme and parts.scheme not in ("http", "https"):
        raise wrong(f"its scheme is {parts.scheme!r}, and http and https are known")
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc.removesuffix(":")
    if not _HOST.fullmatch(host):
        raise wrong("it has no host, or one that is none")
    if not _PATH.fullmatch(parts.path) or any(step in (".", "..") for step in parts.path.split("/")):
        raise wrong("its path is none")
    scheme = parts.scheme if has_scheme else "http" if port == _HTTP_SERVICE_PORT else "https"
    default = 443 if scheme == "https" else 80
    return f"{scheme}://{host.lower()}{'' if port in (None, default) else f':{port}'}{parts.path.rstrip('/')}"


def model_path(server: str | None, model: str | None, version: Version = None, tail: str = "") -> str:
    """Return the address of what is asked of a model, or of all; raises UsageError for no name, or no version."""
    for name, what in ((server, "server"), (model, "model")):
        if name is not None and not is_name(name):
            raise UsageError(f"{name!r} is no name of a {what}", do=RULE)
    if version is not None and (isinstance(version, bool) or not _NUMBER.fullmatch(str(version))):
        raise UsageError(f"{str(version)!r} is no version", why="it is a number from 1, without leading zeros")
    at = "" if server is None else f"/servers/{server}"
    which = "" if version is None else f"/versions/{version}"
    return f"{at}/v2/models{'' if model is None else f'/{model}'}{which}{tail}"


def served_name(name: str) -> str:
    """Return a name by which OpenAI's clients may call a model, as its own is, too; raises UsageError for none."""
    from tidegate_contracts.openai import is_served_name  # which client models go without

    if not is_served_name(name):
        raise UsageError(f"{name!r} is no name of a model", do=SERVED_NAME_RULE)
    return name


def _sticky(word: str | None) -> dict[str, str]:
    """Return the header that keeps calls with one word at one version; raises UsageError."""
    if word is not None and not _WORD.fullmatch(word):
        raise UsageError(f"{word!r} is no sticky word", why="1 to 128 letters, digits, dots, dashes, underscores are")
    return {} if word is None else {"tidegate-sticky": word}


class ProxyClient(AbstractContextManager["ProxyClient"]):
    """Calls and inspects models.

    Every method raises an error of `tidegate.errors`: `BusyError` where the proxy said when to come again and the time
    does not last so long, `UnreachableError` for all that failed. Again is tried what surely did nothing (there was a
    `Retry-After`, or no connection), and what only looks.
    """

    def __init__(
        self,
        url: str | None = None,
        credential: Credential | None = None,
        *,
        seconds: float = SECONDS,
        waits: bool = True,
    ) -> None:
        """Connect to nothing yet. Address and credential are by default those of the environment's variables.

        `waits`: whether it comes again when the proxy is busy and says when; else that is a BusyError at once.
        """
        self.url = proxy_url(url)
        self.seconds, self._waits = seconds, waits
        self._credential = find_credential() if credential is None else credential
        self._transport = Transport(self.url)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # --- looking
    def whoami(self) -> "WhoAmI":
        """Return by which name, groups and source the proxy knows the caller."""
        from tidegate_contracts.environments import WhoAmI  # which brings pydantic: calls of models go without

        reply = self._ask("GET", "/whoami")
        try:
            return WhoAmI.model_validate_json(bytes(reply.body))
        except ValueError:
            raise self._strange("/whoami") from None

    def ready(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> bool:
        """Tell whether a call could be answered: the model is in memory, or nothing speaks against loading it."""
        path = model_path(server, model, version, "/ready")
        reply = self._ask("GET", path, deadline=deadline, also=400)
        if is_problem(reply):
            raise error_of(reply, self.url + path)
        return reply.status == 200

    def metadata(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's metadata; one of an on-demand pool is loaded for it."""
        return self._json(model_path(server, model, version), deadline)

    def config(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's configuration, as Triton completed it; one of an on-demand pool is loaded for it."""
        return self._json(model_path(server, model, version, "/config"), deadline)

    def whereabouts(
        self, model: str | None = None, *, server: str | None = None, deadline: float | None = None
    ) -> "Whereabouts":
        """Return where a model is, or each that the caller may inspect, at every replica, and why; loads nothing."""
        from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Whereabouts

        model_path(server, None)  # refuses what is no name
        path = f"{'' if server is None else f'/servers/{server}'}{WHEREABOUTS_PATH}"
        path += "" if model is None else f"/{served_name(model)}"
        try:
            return Whereabouts.model_validate(self._json(path, deadline))
        except ValueError:
            raise self._strange(path) from None

    def statistics(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> list[dict[str, Any]]:
        """Return what Triton's statistics extension has (`model_stats`) for each version that one replica of each pool
        has loaded; nothing is loaded for it."""
        path = model_path(server, model, version, "/stats")
        found = self._json(path, deadline).get("model_stats")
        if not isinstance(found, list) or not all(isinstance(each, dict) and "name" in each for each in found):
            raise self._strange(path)
        return found

    # --- calling
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
        """Call a model with arrays, by the names of its inputs; they go and come as bytes, uncopied.

        Calls with the same `sticky` word go to the same version while traffic is shared between several.
        """
        path = model_path(server, model, version, "/infer")
        body, length = pack(inputs, parameters)
        headers = {HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"} | _sticky(sticky)
        return unpack(self._ask("POST", path, body, headers, deadline), self.url + path)

    def infer_json(
        self,
        model: str,
        body: Mapping[str, Any],
        *,
        server: str | None = None,
        version: Version = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Call a model with the body of a v2 inference request as JSON, and return Triton's answer as it is."""
        return self._json(model_path(server, model, version, "/infer"), deadline, body)

    def openai(
        self, call: str, body: Mapping[str, Any], *, server: str | None = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Call a model, which the body names, by OpenAI's API: `call` is `chat/completions`, `embeddings` …, and is
        answered as a whole. OpenAI's own client does that, too, and streams: docs/openai.md."""
        where = model_path(server, None).removesuffix("/v2/models")
        return self._json(f"{where}/v1/{call}", deadline, body)

    # ---
    def _json(self, path: str, deadline: float | None, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the object that is answered to a look, or to a JSON body."""
        if body is None:
            reply = self._ask("GET", path, deadline=deadline)
        else:
            headers = {"Content-Type": "application/json"}
            reply = self._ask("POST", path, [_dumped(body)], headers, deadline)
        document = reply.json()
        if not isinstance(document, dict):
            raise self._strange(path)
        # Where an answer has no version of its own, the proxy says which one it chose.
        if "model_name" in document and not document.get("model_version") and VERSION in reply.headers:
            document["model_version"] = reply.headers[VERSION]
        return document

    def _ask(
        self,
        method: str,
        path: str,
        body: Body = (),
        headers: Mapping[str, str] | None = None,
        deadline: float | None = None,
        also: int = 200,
    ) -> Reply:
        """Return the answer 200, or `also`, trying again what may be tried again; raises the error of any other one."""
        until = Deadline(self.seconds if deadline is None else deadline)
        where = self.url + path
        tries, renewed = 0, False
        busy: TidegateError | None = None
        while True:
            tries += 1
            head = self._head(headers or {}, until)
            if until.left <= 0:
                raise TimeIsUpError("there was no answer in time", where=where, do="wait longer, or try again later")
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
        left = until.left  # after the credential, which may take a while
        head["request-timeout"] = f"{max(left - _MARGIN, left / 2, 0.001):.3f}"
        return head

    def _strange(self, path: str) -> UnreachableError:
        do = "see whether the address is that of an inference proxy, of this version"
        return UnreachableError("this does not answer as an inference proxy does", where=self.url + path, do=do)


def _dumped(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError("the request is no JSON", why=str(error)) from None
