"""The body of a request to OpenAI's API: which model it names, and how it streams.

Only the outermost keys are decoded. The proxy writes a new body from them: the server reads the same model as the
one that access was decided for, also where a key stood twice or was escaped. Values go on as they came.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from tidegate_contracts.openai import LONGEST_SERVED_NAME

from ..bodies import UNREADABLE, Bytes
from ..problems import Problem, ProblemType

MOST_READ = 32 * 1024 * 1024  # Bytes of a body, which is read in one piece.
MOST_VALUES = 400_000  # Values in it. Short keys and numbers take longest: so many, some 25 ms.
MOST_KEYS = 256  # Outermost keys.
_STEP = 1024 * 1024  # Bytes of a body whose values need not be counted.
_DECISIVE = frozenset({"model", "stream", "stream_options"})  # About access, the version, and limits.
_MOST_OPTIONS = 1024  # Bytes of options of a stream that are read.
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_name = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What a body says. `options`, if there are any, replace its `stream_options` for a stream to tell its usage."""

    model: str
    streams: bool | None  # Whether the answer is a stream of events; None: the body does not say so plainly.
    options: dict[str, Any] | None
    members: dict[str, msgspec.Raw]

    def parts(self, name: str, asks: bool) -> list[Bytes]:
        """Return the body with this name for its model; `asks`: and with a stream's usage asked for."""
        changed = {"model": name} | ({"stream_options": self.options} if asks and self.options else {})
        parts: list[Bytes] = []
        for key in self.members | changed:
            value = msgspec.json.encode(changed[key]) if key in changed else memoryview(self.members[key])
            parts += (b"%b%b:" % (b"," if parts else b"{", msgspec.json.encode(key)), value)
        return [*parts, b"}"]


def read(body: Bytes) -> ModelCall:
    """Return what a body says; raises Problem."""
    if len(body) > MOST_READ or _has_too_many(body):
        why = f"JSON that names a model may have {MOST_READ} bytes, and {MOST_VALUES} values."
        raise Problem(ProblemType.TOO_LONG, why)
    try:
        members = _members.decode(body)
        if len(members) > MOST_KEYS:
            raise Problem(ProblemType.TOO_LONG, f"JSON that names a model may have {MOST_KEYS} outermost keys.")
        model = _name.decode(members.get("model", b"null"))
    except UNREADABLE as error:
        raise Problem(ProblemType.MALFORMED, f"The body is no JSON object that names its model: {error}.") from None
    if not model or len(model.encode()) > LONGEST_SERVED_NAME:
        why = f"has more than {LONGEST_SERVED_NAME} bytes" if model else "is empty: name the model that is called"
        raise Problem(ProblemType.MALFORMED, f"The body's `model` {why}.")
    for key in members.keys() - _DECISIVE:
        if (plain := key.casefold()) in _DECISIVE:  # some servers take the one for the other
            raise Problem(ProblemType.MALFORMED, f"The body has the key `{plain}` in other letters: {key!r}.")
    streams = {b"true": True, b"": False, b"false": False, b"null": False}.get(_short(members, "stream"))
    options = _options(_short(members, "stream_options")) if streams else None
    return ModelCall(model, None if options is False else streams, options or None, members)


def _has_too_many(body: Bytes) -> bool:
    """Tell whether it may have more values than are read; where there are far too many, that is soon seen."""
    values, whole = 0, memoryview(body)
    for at in range(0, len(whole), _STEP) if len(whole) > _STEP else ():
        step = bytes(whole[at : at + _STEP])
        values += sum(step.count(sign) for sign in (b",", b"[", b"{"))
        if values > MOST_VALUES:
            return True
    return False


def _short(members: dict[str, msgspec.Raw], key: str) -> bytes:
    """Return a value as it stands there, empty where there is none, and the beginning of a long one."""
    return bytes(memoryview(members[key])[: _MOST_OPTIONS + 1]) if key in members else b""


def _options(raw: bytes) -> dict[str, Any] | Literal[False] | None:
    """Return the options with which a stream tells its usage, None where they say so, False where they are unclear."""
    if len(raw) > _MOST_OPTIONS:
        return False
    try:
        options = (msgspec.json.decode(raw) if raw else None) or {}
    except UNREADABLE:
        return False
    if not isinstance(options, dict):
        return False
    return None if options.get("include_usage") is True else options | {"include_usage": True}
