"""The inference proxy, as its callers see it: docs/proxy-api.md. One object serves many threads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ..errors import UnreachableError, UsageError
from .address import Version, model_path, of_server, proxy_url, sticky_header
from .credentials import Credential, find_credential
from .problems import Reply, error_of
from .retries import CircuitBreaker, Requester
from .sse import events
from .tensors import HEADER_LENGTH, VERSION, Answer, Array, pack, unpack
from .transport import Transport

if TYPE_CHECKING:
    from tidegate_contracts.environments import WhoAmI

SECONDS: Final = 60.0
"""How long a call may take by default."""
_UNAVAILABLE: Final = "tidegate-unavailable"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What Triton counted since a model was loaded, of one replica of each pool."""

    models: list[dict[str, Any]]
    """One for each version that is loaded, as Triton's statistics extension has it (`model_stats`)."""
    unavailable: tuple[str, ...] = ()
    """Pools that gave none, as `server/pool`."""


class ProxyClient:
    """Calls and inspects models.

    Every method raises an error of `tidegate.errors`: `RefusedError` where the credential or a rule does not allow it,
    `NotFoundError`, `UsageError` for a request that is wrong, `BusyError` where the proxy said when to come again and
    the time does not last so long, `UnreachableError` for all that failed. `deadline` is the seconds that a call may
    take, all tries together. Again is tried what surely did nothing (there was a `Retry-After`, or no connection), and
    what only looks.
    """

    def __init__(
        self,
        url: str | None = None,
        credential: Credential | None = None,
        *,
        ca: str | Path | None = None,
        seconds: float = SECONDS,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        """Connect to nothing yet. Address and credential are those of the environment's variables if none are given."""
        self.url = proxy_url(url)
        self.credential = find_credential() if credential is None else credential
        self.seconds = seconds
        self._requester = Requester(Transport(self.url, ca), self.credential, seconds, breaker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._requester.transport.close()

    # --- looking
    def whoami(self, deadline: float | None = None) -> "WhoAmI":
        """Return as whom the proxy knows the caller."""
        from tidegate_contracts.environments import WhoAmI  # which brings pydantic: calls of models go without

        reply = self._get("/whoami", deadline)
        try:
            return WhoAmI.model_validate_json(bytes(reply.body))
        except ValueError:
            raise self._strange("/whoami") from None

    def ready(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> bool:
        """Tell whether a call could be answered: the model is in memory, or nothing speaks against loading it."""
        path = model_path(server, model, version, "/ready")
        reply = self._requester.ask("GET", path, (), {}, deadline, also=(400,))
        if reply.status == 400 and reply.headers.get("content-type", "").startswith("application/problem+json"):
            raise error_of(reply, self.url + path)
        return reply.status == 200

    def metadata(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's metadata; one of an on-demand pool is loaded for it."""
        return self._object(model_path(server, model, version), deadline)

    def config(
        self, model: str, *, server: str | None = None, version: Version = None, deadline: float | None = None
    ) -> dict[str, Any]:
        """Return a model's configuration, as Triton completed it; one of an on-demand pool is loaded for it."""
        return self._object(model_path(server, model, version, "/config"), deadline)

    def statistics(
        self,
        model: str | None = None,
        *,
        server: str | None = None,
        version: Version = None,
        deadline: float | None = None,
    ) -> Statistics:
        """Return the statistics of a model, or of all that the caller may inspect; nothing is loaded for it."""
        path = f"{of_server(server)}/v2/models/stats" if model is None else model_path(server, model, version, "/stats")
        reply = self._get(path, deadline)
        said = self._json(reply, path).get("model_stats")
        if not isinstance(said, list) or not all(isinstance(each, dict) and "name" in each for each in said):
            raise self._strange(path)
        lacking = reply.headers.get(_UNAVAILABLE, "")
        return Statistics(said, tuple(each.strip() for each in lacking.split(",") if each.strip()))

    # --- calling
    def infer(
        self,
        model: str,
        inputs: Mapping[str, Array],
        *,
        server: str | None = None,
        version: Version = None,
        outputs: Sequence[str] = (),
        parameters: Mapping[str, Any] | None = None,
        sticky: str | None = None,
        deadline: float | None = None,
    ) -> Answer:
        """Call a model with arrays, by the names of its inputs; they go and come as bytes, uncopied.

        Without `outputs` all are returned. Calls with the same `sticky` word go to the same version while traffic is
        shared between several.
        """
        path = model_path(server, model, version, "/infer")
        body, length = pack(inputs, outputs, parameters)
        headers = {HEADER_LENGTH: str(length), "Content-Type": "application/octet-stream"} | sticky_header(sticky)
        return unpack(self._requester.ask("POST", path, body, headers, deadline), self.url + path)

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
        return self._post(model_path(server, model, version, "/infer"), body, deadline)

    def predict(
        self,
        server: str,
        model: str,
        version: Version,
        payload: Mapping[str, Any],
        *,
        sticky: str | None = None,
        deadline: float | None = None,
    ) -> dict[str, Any]:
        """Call a model as Domino's reference implementation does; `payload` is the body of a v2 request."""
        model_path(server, model, version)  # which refuses names that are none
        said = {"inference_server_name": server, "model_name": model, "model_version": str(version or "")}
        return self._post("/predict", said | {"payload": payload}, deadline, sticky_header(sticky))

    def stream(
        self,
        model: str,
        body: Mapping[str, Any],
        *,
        server: str | None = None,
        version: Version = None,
        sticky: str | None = None,
        deadline: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Call a model by Triton's generate extension, with values by input names, and give its answers as they come.

        `deadline` is that of the whole stream; without it, it may last as long as something comes every `seconds`.
        An error in the middle of the stream, or its being cut, is raised when it comes.
        """
        path = model_path(server, model, version, "/generate_stream")
        sent = [_dumped(body)]
        with ExitStack() as stack:
            pieces: Iterator[bytes] = iter(())

            def once(headers: Mapping[str, str], end: float) -> Reply:
                nonlocal pieces
                opened = self._requester.transport.stream(
                    "POST", path, sent, headers, end, self.seconds if not deadline else 0
                )
                reply, pieces = stack.enter_context(opened)
                if reply.status != 200:
                    stack.close()
                return reply

            headers = {"Content-Type": "application/json", "Accept": "text/event-stream"} | sticky_header(sticky)
            self._requester.tried(once, "POST", path, headers, deadline, tell_deadline=deadline is not None)
            yield from events(pieces, self.url + path)

    # ---
    def _get(self, path: str, deadline: float | None) -> Reply:
        return self._requester.ask("GET", path, (), {}, deadline)

    def _object(self, path: str, deadline: float | None) -> dict[str, Any]:
        return self._json(self._get(path, deadline), path)

    def _post(
        self, path: str, body: Mapping[str, Any], deadline: float | None, more: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"} | dict(more or {})
        return self._json(self._requester.ask("POST", path, [_dumped(body)], headers, deadline), path)

    def _json(self, reply: Reply, path: str) -> dict[str, Any]:
        try:
            said = reply.json()
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise self._strange(path)
        # Where an answer has no version of its own, the proxy says which one it chose.
        if "model_name" in said and not said.get("model_version") and VERSION in reply.headers:
            said["model_version"] = reply.headers[VERSION]
        return said

    def _strange(self, path: str) -> UnreachableError:
        do = "see whether the address is that of an inference proxy, of this version"
        return UnreachableError("this does not answer as an inference proxy does", where=self.url + path, do=do)


def _dumped(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UsageError("the request is no JSON", why=str(error)) from None
