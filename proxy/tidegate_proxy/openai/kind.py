"""Servers that speak OpenAI's HTTP API as one kind.

The body names the model, or what else it is called. A version N of the model `m`, where shares choose one, is what the
server serves as `m-vN`; who asks for that name gets that version.
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
_ASKED_FOR_USAGE = ("chat/completions", "completions")  # Whose streams tell it only if they are to.
_CODES = {
    "unauthenticated": "invalid_api_key",
    "unknown": "model_not_found",
    "unknown-url": "unknown_url",
    "rate-limited": "rate_limit_exceeded",
}
"""What OpenAI's own errors have as `code`, by the reason of a problem, or the last word of its type."""
_NOT_BEGUN = re.compile(rb'"message":"(?:Failed to generate |Model `[^`"]*` is not ready to serve )')
"""Of Dynamo, with 500 and 503, for a while after its worker was killed; engines say 503 of much else."""
_PATH = re.compile(rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v1/(?P<verb>{'|'.join(_CALLS)})")


class _Listed(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Listed]


_list = msgspec.json.Decoder(_List)


def tell_model(model: str, server: str) -> bytes:
    """Return what the list of models tells of one: when it was made is not known here."""
    return msgspec.json.encode({"id": model, "object": "model", "created": 0, "owned_by": server})


class OpenAIKind(ServerKind):
    """What the proxy knows of such servers."""

    root = "/v1"
    live_path = b"/health"  # Of vLLM, SGLang and Dynamo; a pool of others says its own.
    usage_of = Usage

    def parse_path(self, path: str) -> Target | None:
        """Return what a path asks, of which model its body tells; None for a path that is none of the API's."""
        if (match := _PATH.fullmatch(path)) is None:
            return None
        return Target(NAME, match["verb"], b"POST", "infer", "", match["server"], in_body=True)

    def open_body(self, target: Target, body: Bytes) -> tuple[Target, OfVersion]:
        """Return what a body asks, and its parts with the name of a model or of its version; raises Problem."""
        call = read(body)
        if not is_served_name(call.model):
            raise Problem(ProblemType.UNKNOWN, "No model can have such a name.")
        asks = None if call.streams is None else call.options is not None and target.verb in _ASKED_FOR_USAGE
        streams = call.streams is not False
        asked = replace(target, model=call.model, in_body=False, streams=streams, asks_for_usage=asks)

        def naming(model: str, version: str | None, asks: bool) -> list[Bytes]:
            return call.parts(_served(model, version), asks)

        return asked, naming

    def version_name(self, model: str, version: str) -> str | None:
        """Return the name under which a server serves it."""
        return served_as(model, int(version))

    def serves(self, config: bytes) -> Collection[str]:
        """Return the names in a server's list of models; raises ValueError."""
        try:
            return {each.id for each in _list.decode(config).data}
        except UNREADABLE as error:
            raise ValueError(f"it is no list of models: {error}") from None

    def path(self, target: Target, _version: str | None) -> bytes:
        """Return the server's path: the version is named in the body."""
        return f"/v1/{target.verb}".encode()

    def config_path(self, _model: str) -> bytes:
        """Return where a server lists its models, which is all that it tells of them."""
        return b"/v1/models"

    def says_lost(self, status: int, answer: bytes) -> bool:
        """Tell whether a server may say that it does not have the model that it had, and did nothing."""
        return status == 404 or (status in (500, 503) and _NOT_BEGUN.search(answer) is not None)

    async def lacks(self, status: int, pool: Pool, replica: Replica, model: str, version: str | None) -> bool:
        """Tell whether a replica lacks a model. One that answered 404 is asked: it may have it, and not that path."""
        if status != 404:
            return True
        try:
            names = await listed(pool, self.config_path(model), replica, self.serves)
            return names is None or _served(model, version) not in names
        except (Problem, ValueError):
            return True

    def problem_body(self, problem: Problem, _request_id: str) -> tuple[str, bytes]:
        """Return it in the shape of OpenAI's own errors."""
        type_, word = "invalid_request_error" if problem.type.status < 500 else "server_error", problem.type.word
        if problem.type is ProblemType.RATE_LIMITED:  # which says of what there was too much
            type_ = problem.reason or "requests"
        code = _CODES.get(problem.reason) or _CODES.get(word, word)
        said = {"message": problem.detail, "type": type_, "param": None, "code": code}
        return "application/json", msgspec.json.encode({"error": said})

    def error_text(self, body: bytes) -> str:
        """Return the type or code of an error alone: engines repeat in the message what was wrong with a prompt."""
        try:
            error = msgspec.json.decode(body)
        except UNREADABLE:
            return ""
        error = error.get("error", error) if isinstance(error, dict) else None
        word = (error.get("type") or error.get("code")) if isinstance(error, dict) else None
        return "" if word is None else str(word)


def _served(model: str, version: str | None) -> str:
    return model if version is None else served_as(model, int(version))
