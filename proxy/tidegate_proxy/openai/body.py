"""The body of a request: which model it names, and where, without reading more of it than that.

What decides about access is what the server reads, too: a body that names its model twice, or in letters that not
everybody reads alike, is refused. A slash may be escaped, as PHP writes it. The name alone is written anew, where a
version is chosen or it is not the model's own; and where what streams use is limited, they are asked to tell it
(`stream_options`).
"""

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import msgspec
from tidegate_contracts.openai import LONGEST_SERVED_NAME

from ..bodies import Bytes
from ..problems import Problem, ProblemType

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
MOST_NAMED = 16  # Keys in one body that are called model and have a text as value, those in metadata among them.
MOST_READ = 32 * 1024 * 1024  # Bytes of a body, which is read in one piece.
MOST_VALUES = 400_000  # Values in it. Short keys and numbers take longest: so many, some 25 ms.
_STEP = 1024 * 1024  # Bytes of a body whose values need not be counted.
_KEY = b'"model"'
_NAMED = re.compile(rb'"model"\s*:\s*"([^"\\]{1,%d}(?:\\/[^"\\]{1,%d}){0,%d})"' % ((LONGEST_SERVED_NAME,) * 3))
_KEYS = ("model", "stream", "stream_options")  # Those that decide here: about access, the version, and limits.


def _letter(letter: str) -> str:
    """Return a pattern of the ways to write a letter, in either case: also by its number, or as ſ, which folds to s."""
    letters = [letter, letter.upper(), *("ſ" if letter == "s" else "")]
    forms = "|".join([*letters, *(rf"\\u{ord(each):04x}" for each in letters)])
    return f"(?:{forms})"


_ALIKE = re.compile(
    rb'"(?!(?-i:%b)")(?:%b)"'
    % ("|".join(_KEYS).encode(), "|".join("".join(map(_letter, key)) for key in _KEYS).encode()),
    re.IGNORECASE,
)
"""What a server may take for one of those, if it does not tell small letters from large ones."""
_LONGEST_ALIKE = 128
_all = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MOST_OPTIONS = 1024  # Bytes of options of a stream that are looked at.


@dataclass(frozen=True, slots=True)
class ModelCall:
    """What is read of a body: its model's name, and where that is."""

    model: str
    name_at: tuple[int, int]
    streams: bool | None
    """Whether events are asked for; None: that is neither yes nor no, or how is not said plainly."""
    asking: tuple[int, int, bytes] | None
    """What has to stand in place of which bytes for a stream to tell what it used; None where it does."""

    def parts(self, body: Bytes, name: str, asks: bool) -> list[Bytes]:
        """Return the body with this name for its model; `asks`: and with a stream's usage asked for."""
        changes = []
        if name != self.model:
            changes.append((*self.name_at, name.encode()))
        if asks and self.asking is not None:
            changes.append(self.asking)
        whole, parts, at = memoryview(body), list[Bytes](), 0
        for start, end, instead in sorted(changes):
            parts += (whole[at:start], instead)
            at = end
        return [*parts, whole[at:]]


class _Said(msgspec.Struct):
    model: str
    stream: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stream_options: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_said = msgspec.json.Decoder(_Said)
_STAND_INS = [f"!~?{number:02}" for number in range(MOST_NAMED)]  # As long as `model`, and nobody's keys.
_one = (msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
_fields = {"model": "model"} | {f"key{number}": name for number, name in enumerate(_STAND_INS)}
_outermost = msgspec.json.Decoder(
    msgspec.defstruct("Outermost", [(field, *_one) for field in _fields], rename=_fields.__getitem__)
)


def read(body: Bytes) -> ModelCall:
    """Return what a body asks; raises Problem."""
    whole = body if isinstance(body, bytearray) else bytearray(body)
    if len(whole) > MOST_READ or _has_too_many(whole):
        why = f"JSON that names a model may have {MOST_READ} bytes, and {MOST_VALUES} values."
        raise Problem(ProblemType.TOO_LONG, why)
    try:
        return _read(whole)
    except UNREADABLE as error:
        raise Problem(ProblemType.MALFORMED, f"The body is no JSON object that names its model: {error}.") from None


def _has_too_many(body: bytearray) -> bool:
    """Tell whether it may have more values than are read; where there are far too many, that is soon seen."""
    values = 0
    for at in range(0, len(body), _STEP) if len(body) > _STEP else ():
        values += sum(body.count(sign, at, at + _STEP) for sign in (b",", b"[", b"{", _KEY))
        if values > MOST_VALUES:
            return True
    return False


def _read(body: bytearray) -> ModelCall:
    """Each key `model` has a name of its own while a parser finds which of them are outermost."""
    found = islice(_NAMED.finditer(body), MOST_NAMED + 1)
    said = _said.decode(body)
    named = [(each.start(), each.span(1), bytes(each[1])) for each in found]
    named = [each for each in named if body[each[0] - 1 : each[0]] != b"\\"]  # there another key ends
    if len(named) > MOST_NAMED:
        raise Problem(ProblemType.MALFORMED, f"A body has at most {MOST_NAMED} keys that are called model.")
    del found  # whose matches keep the body as long as it is
    try:
        for (key, *_), stand_in in zip(named, _STAND_INS, strict=False):
            body[key : key + len(_KEY)] = f'"{stand_in}"'.encode()
        other, *keys = msgspec.structs.astuple(_outermost.decode(body))
    finally:
        for key, *_ in named:
            body[key : key + len(_KEY)] = _KEY
    outermost = [each for each, key in zip(named, keys, strict=False) if key is not msgspec.UNSET]
    if other is not msgspec.UNSET or len(outermost) != 1:
        times = len(outermost) + (other is not msgspec.UNSET)
        raise Problem(ProblemType.MALFORMED, f"The body's `model` {_unclear(said.model, times)}.")
    if alike := _alike(body):
        raise Problem(ProblemType.MALFORMED, f"The body has the key `{alike[0]}` in other letters, too: {alike[1]!r}.")
    [(key_at, name_at, name)] = outermost
    streams = {b"true": True, b"": False, b"false": False, b"null": False}.get(_short(said.stream))
    asking = _asking(body, key_at, said.stream_options) if streams else None
    streams = None if asking is False else streams
    return ModelCall(name.decode().replace("\\/", "/"), name_at, streams, asking or None)


def _alike(body: bytearray) -> tuple[str, str] | None:
    """Return an outermost key that differs in case alone from one that decides, and the latter first."""
    steps = range(0, len(body), _STEP)
    if not any(_ALIKE.search(body, at, at + _STEP + _LONGEST_ALIKE) for at in steps):
        return None
    keys = (key for key in _all.decode(body) if key not in _KEYS)
    return next(((key.casefold(), key) for key in keys if key.casefold() in _KEYS), None)


def _unclear(name: str, times: int) -> str:
    """Return why it is not plain which model a body names, so many times."""
    if times > 1:
        return "stands there more than once: name one model"
    if not name:
        return "is empty: name the model that is called"
    if len(name.encode()) > LONGEST_SERVED_NAME:
        return f"has more than {LONGEST_SERVED_NAME} bytes"
    return "is written with escapes, as in \\u0061: write the letters themselves (a slash alone may be escaped)"


def _short(raw: Any) -> bytes:
    """Return a value as it stands there, nothing of one that is not, and the beginning of a long one."""
    return b"" if raw is msgspec.UNSET else bytes(memoryview(raw)[:_MOST_OPTIONS])


def _asking(body: bytearray, key_at: int, options: Any) -> tuple[int, int, bytes] | Literal[False] | None:
    """Return what has to change, None where nothing has to, False where it is not known what."""
    if not (said := _short(options)):
        return key_at, key_at, b'"stream_options":{"include_usage":true},'
    there = [*islice(re.finditer(rb'"stream_options"\s*:\s*(%b)' % re.escape(said), body), 2)]
    if len(said) == _MOST_OPTIONS or len(there) != 1:
        return False  # which of them it is would have to be found out
    asked = msgspec.json.decode(said)
    if not isinstance(asked, dict | None):
        return False
    if (asked or {}).get("include_usage") is True:
        return None
    return *there[0].span(1), msgspec.json.encode((asked or {}) | {"include_usage": True})
