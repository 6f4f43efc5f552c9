"""The body of a request: which model it names, and where, without reading more of it than that.

What decides about access is what the server reads, too: a body that names its model twice, or in letters that not
everybody reads alike, is refused. The name alone is written anew, where a version is chosen.
"""

import re
from itertools import islice

import msgspec

from ..problems import Problem, ProblemType

Bytes = bytes | bytearray | memoryview
UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_KEY = b'"model"'
_NAMED = re.compile(rb'"model"\s*:\s*"([^"\\]{1,127})"')
"""A key `model` and its name, at whatever depth; behind a backslash it is the end of another key."""
MOST_NAMED = 100  # Such keys in one body, those of tools' parameters among them.


class ModelCall(msgspec.Struct):
    """What is read of a body."""

    model: str
    stream: msgspec.Raw = msgspec.Raw(b"false")

    @property
    def streams(self) -> bool:
        """Whether events are asked for; what is neither yes nor no may be taken for yes by the server."""
        said = memoryview(self.stream)
        return len(said) > len(b"false") or bytes(said) not in (b"false", b"null")


_call = msgspec.json.Decoder(ModelCall)
_STAND_INS = [f"!~?{number:02}" for number in range(MOST_NAMED)]  # As long as `model`, and nobody's keys.
_fields = {"model": "model"} | {f"key{number}": name for number, name in enumerate(_STAND_INS)}
_one = (msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
_outermost = msgspec.json.Decoder(
    msgspec.defstruct("Outermost", [(field, *_one) for field in _fields], rename=_fields.__getitem__)
)


def read(body: Bytes) -> tuple[ModelCall, int]:
    """Return what a body asks, and where its model's name begins; raises Problem."""
    try:
        return _call.decode(body), _name_at(body if isinstance(body, bytearray) else bytearray(body))
    except UNREADABLE as error:
        raise Problem(ProblemType.MALFORMED, f"The body is no JSON object that names its model: {error}.") from None


def _name_at(body: bytearray) -> int:
    """Return where the model's name begins: each key is given a name of its own meanwhile, and a parser finds which
    of them are outermost."""
    found = islice(_NAMED.finditer(body), MOST_NAMED + 1)
    named = [(each.start(), each.start(1)) for each in found if body[each.start() - 1 : each.start()] != b"\\"]
    outermost = []
    if len(named) <= MOST_NAMED:
        try:
            for (key, _), stand_in in zip(named, _STAND_INS, strict=False):
                body[key : key + len(_KEY)] = f'"{stand_in}"'.encode()
            others, *keys = msgspec.structs.astuple(_outermost.decode(body))
        finally:
            for key, _ in named:
                body[key : key + len(_KEY)] = _KEY
        if others is msgspec.UNSET:
            outermost = [each for each, key in zip(named, keys, strict=False) if key is not msgspec.UNSET]
    if len(named) > MOST_NAMED:
        raise Problem(ProblemType.MALFORMED, f"A body has at most {MOST_NAMED} keys that are called model.")
    if len(outermost) != 1:
        raise Problem(ProblemType.MALFORMED, "A body names its model once, in letters without escapes.")
    return outermost[0][1]
