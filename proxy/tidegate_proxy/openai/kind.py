"""The kind of servers that speak OpenAI's HTTP API.

The body names the model, by its own or another name. If shares choose version N of the model `m`, the server serves it
as `m-vN`. A caller that uses this name gets that version.
"""

import re
from collections.abc import Collection
from dataclasses import replace

import msgspec
from tidegate_contracts.openai import is_served_name, served_as

from ..bodies import UNREADABLE, Bytes, OfVersion
from ..pools import Pool, listed
from ..problems import Problem, ProblemType
from ..server_kind import ServerKind
from ..targets import NAME_PATTERN, Target
from ..upstream.replica import Replica
from .body import read
from .usage import Usage

NAME = "openai"
_CALLS = ("chat/completions", "completions", "embeddings", "responses")
_USAGE_ON_REQUEST = ("chat/completions", "completions")  # Their streams report usage only on request.
_CODES = {
    "unauthenticated": "invalid_api_key",
    "unknown": "model_not_found",
    "unknown-url": "unknown_url",
    "rate-limited": "rate_limit_exceeded",
}
"""The `code` of OpenAI's own errors, by a problem's reason or the last word of its type."""
_NOT_BEGUN = re.compile(rb'"message":"(?:Failed to generate |Model `[^`"]*` is not ready to serve )')
"""From Dynamo, with 500 and 503, for a while after its worker was killed. Engines use 503 for much else."""
_PATH = re.compile(rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v1/(?P<verb>{'|'.join(_CALLS)})")


class _Listed(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Listed]


_list = msgspec.json.Decoder(_List)


def model_entry(model: str, server: str) -> bytes:
    """Return a model's entry in the list of models. Its creation time is unknown."""
    return msgspec.json.encode({"id": model, "object": "model", "created": 0, "owned_by": server})


class OpenAIKind(ServerKind):
    """The proxy's side of OpenAI's HTTP API."""

    root = "/v1"
    live_path = b"/health"  # Of vLLM, SGLang and Dynamo. A pool of other engines sets another.
    usage_of = Usage

    def parse_path(self, path: str) -> Target | None:
        """Return the target of a path, without a model, which the body names. None for a path of another protocol."""
        if (match := _PATH.fullmatch(path)) is None:
            return None
        return Target(NAME, match["verb"], b"POST", "infer", "", match["server"], in_body=True)

    def open_body(self, target: Target, body: Bytes) -> tuple[Target, OfVersion]:
        """Return the target in a body, and its parts with the name of a model or of its version. Raises Problem."""
        call = read(body)
        if not is_served_name(call.model):
            raise Problem(ProblemType.UNKNOWN, "This is not a valid name of a model.")
        asks = None if call.streams is None else call.options is not None and target.verb in _USAGE_ON_REQUEST
        streams = call.streams is not False
        found = replace(target, model=call.model, in_body=False, streams=streams, requests_usage=asks)

        def naming(model: str, version: str | None, asks: bool) -> list[Bytes]:
            return call.parts(_served(model, version), asks)

        return found, naming

    def version_name(self, model: str, version: str) -> str | None:
        return served_as(model, int(version))

    def serves(self, config: bytes) -> Collection[str]:
        """Return the names in a server's list of models. Raises ValueError."""
        try:
            return {each.id for each in _list.decode(config).data}
        except UNREADABLE as error:
            raise ValueError(f"it is not a list of models: {error}") from None

    def path(self, target: Target, _version: str | None) -> bytes:
        return f"/v1/{target.verb}".encode()

    def config_path(self, _model: str) -> bytes:
        """Return the path of a server's list of models, its only configuration."""
        return b"/v1/models"

    def reports_lost(self, status: int, answer: bytes) -> bool:
        """Return whether a server may have lost the model that it had, and did nothing."""
        return status == 404 or (status in (500, 503) and _NOT_BEGUN.search(answer) is not None)

    async def lacks(self, status: int, pool: Pool, replica: Replica, model: str, version: str | None) -> bool:
        """Return whether a replica lacks a model. After a 404 it is queried, because only the path may be unknown."""
        if status != 404:
            return True
        try:
            names = await listed(pool, self.config_path(model), replica, self.serves)
            return names is None or _served(model, version) not in names
        except (Problem, ValueError):
            return True

    def problem_body(self, problem: Problem, _request_id: str) -> tuple[str, bytes]:
        type_, word = "invalid_request_error" if problem.type.status < 500 else "server_error", problem.type.word
        if problem.type is ProblemType.RATE_LIMITED:  # whose type is the unit of the limit
            type_ = problem.reason or "requests"
        code = _CODES.get(problem.reason) or _CODES.get(word, word)
        error = {"message": problem.detail, "type": type_, "param": None, "code": code}
        return "application/json", msgspec.json.encode({"error": error})

    def error_text(self, body: bytes) -> str:
        """Return only the type or code of an error, because engines repeat parts of a prompt in the message."""
        try:
            error = msgspec.json.decode(body)
        except UNREADABLE:
            return ""
        error = error.get("error", error) if isinstance(error, dict) else None
        word = (error.get("type") or error.get("code")) if isinstance(error, dict) else None
        return "" if word is None else str(word)


def _served(model: str, version: str | None) -> str:
    return model if version is None else served_as(model, int(version))
