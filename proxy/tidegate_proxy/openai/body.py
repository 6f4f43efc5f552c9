"""The body of a request to OpenAI's API: the model that it names, and whether it streams.

Only the outermost keys are decoded. The proxy writes a new body from them. So the server reads the same model as access
control, even if a key was repeated or escaped. Values are passed on unchanged.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from tidegate_contracts.openai import LONGEST_SERVED_NAME

from ..bodies import UNREADABLE, Bytes
from ..problems import Problem, ProblemType

MOST_READ = 32 * 1024 * 1024  # Bytes of a body, which is read in one piece.
MOST_VALUES = 400_000  # Values in it. With short keys and numbers, the slowest case, so many take some 25 ms.
MOST_KEYS = 256  # Outermost keys.
_STEP = 1024 * 1024  # Bytes of a body whose values need not be counted.
_DECISIVE = frozenset({"model", "stream", "stream_options"})  # Keys that decide access, version or limits.
_MOST_OPTIONS = 1024  # Bytes of the longest stream options that are read.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_name = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The contents of a body. If not None, `options` replace `stream_options` so that a stream reports its usage."""

    model: str
    streams: bool | None  # Whether the response is a stream of events. None if the body leaves that unclear.
    options: dict[str, Any] | None
    members: dict[str, msgspec.Raw]

    def parts(self, name: str, asks: bool) -> list[Bytes]:
        """Return the body with this name for its model. With `asks`, it also requests a stream's usage."""
        changed = {"model": name} | ({"stream_options": self.options} if asks and self.options else {})
        parts: list[Bytes] = []
        for key in self.members | changed:
            value = msgspec.json.encode(changed[key]) if key in changed else memoryview(self.members[key])
            parts += (b"%b%b:" % (b"," if parts else b"{", msgspec.json.encode(key)), value)
        return [*parts, b"}"]


def read(body: Bytes) -> ModelCall:
    """Return the contents of a body. Raises Problem."""
    if len(body) > MOST_READ or _has_too_many(body):
        why = f"The JSON body is too large: the limits are {MOST_READ} bytes and {MOST_VALUES} values."
        raise Problem(ProblemType.TOO_LONG, why)
    try:
        members = _members.decode(body)
        if len(members) > MOST_KEYS:
            why = f"The JSON body has too many outermost keys: the limit is {MOST_KEYS}."
            raise Problem(ProblemType.TOO_LONG, why)
        model = _name.decode(members.get("model", b"null"))
    except UNREADABLE as error:
        why = f"The body is not a JSON object that names its model: {error}."
        raise Problem(ProblemType.MALFORMED, why) from None
    if not model or len(model.encode()) > LONGEST_SERVED_NAME:
        why = f"is too long: the limit is {LONGEST_SERVED_NAME} bytes" if model else "is empty: name the model to call"
        raise Problem(ProblemType.MALFORMED, f"The body's `model` {why}.")
    for key in members.keys() - _DECISIVE:
        if (plain := key.casefold()) in _DECISIVE:  # some servers ignore case
            raise Problem(ProblemType.MALFORMED, f"The body has the key `{plain}` in another case: {key!r}.")
    streams = {b"true": True, b"": False, b"false": False, b"null": False}.get(_short(members, "stream"))
    options = _options(_short(members, "stream_options")) if streams else None
    return ModelCall(model, None if options is False else streams, options or None, members)


def _has_too_many(body: Bytes) -> bool:
    """Return whether it has too many values. An obvious excess is found early."""
    values, whole = 0, memoryview(body)
    for at in range(0, len(whole), _STEP) if len(whole) > _STEP else ():
        step = bytes(whole[at : at + _STEP])
        values += sum(step.count(sign) for sign in (b",", b"[", b"{"))
        if values > MOST_VALUES:
            return True
    return False


def _short(members: dict[str, msgspec.Raw], key: str) -> bytes:
    """Return a value as text, or the beginning of a long one. Empty if there is none."""
    return bytes(memoryview(members[key])[: _MOST_OPTIONS + 1]) if key in members else b""


def _options(raw: bytes) -> dict[str, Any] | Literal[False] | None:
    """Return the options that make a stream report its usage. None if they do already, False if they are unclear."""
    if len(raw) > _MOST_OPTIONS:
        return False
    try:
        options = (msgspec.json.decode(raw) if raw else None) or {}
    except UNREADABLE:
        return False
    if not isinstance(options, dict):
        return False
    return None if options.get("include_usage") is True else options | {"include_usage": True}
