"""What a call asks for, whatever kind of server it goes to; and how names and addresses are spelled."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate_contracts.routing import Action

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}"
VERSION_PATTERN = r"[1-9][0-9]{0,15}"
is_name: Callable[[str], object] = re.compile(NAME_PATTERN).fullmatch  # Whether a server or a model can be called this.
is_version: Callable[[str], object] = re.compile(VERSION_PATTERN).fullmatch
"""Whether it is a number that a version can have."""
_UNRESERVED = re.compile(r"%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+([/?].*)?", re.IGNORECASE)
LONGEST = 1024  # Bytes of a path that is looked at.


Asked = tuple[str | None, str, Action, str | None]
"""What a grant is of: the server asked for (or None), the model, the action, and the kind of server (or None)."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that can be asked of a model."""

    kind: str  # The kind of server that is asked like this.
    verb: str
    method: bytes  # The one method that it takes.
    action: Action  # What a rule must grant for it.
    model: str
    server: str | None = None
    version: str | None = None
    in_body: bool = False  # Whether only the body says what is asked: the kind's `open_body` reads it.
    needs_no_lease: bool = False  # Whether it loads no model: the kind answers it by `answer_without_lease`.
    may_be_of_sequence: bool = False  # Whether it may be of a sequence.
    streams: bool = False  # Whether its answer may go on for as long as it moves.
    asks_for_usage: bool | None = False
    """Whether what it used is told only if the proxy asks for that in its caller's place; None where that is not said:
    then it cannot be had where that is limited."""
    asked: Asked = field(init=False, compare=False)  # What has to be granted for it.

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", (self.server, self.model, self.action, self.kind))


def origin_form(url: bytes) -> bytes:
    """Return the path, and what follows it, of a request's target that names scheme and host, too (RFC 9112, 3.2.2).

    Any other target is returned as it is.
    """
    if url[:1] == b"/" or (match := _ABSOLUTE.fullmatch(url)) is None:
        return url
    rest: bytes = match[1] or b"/"
    return rest if rest[:1] == b"/" else b"/" + rest


def without_path(url: bytes, path: bytes) -> bytes:
    """Return a target in origin form without the path below which the proxy is exposed, which is taken away once.

    A target that is not below that path is returned as it is; so is one that spells it otherwise (encoded, `//`), since
    nothing else here would parse_path it.
    """
    rest = url.removeprefix(path)
    if len(rest) == len(url) or rest[:1] not in (b"/", b"?", b""):
        return url
    return rest if rest[:1] == b"/" else b"/" + rest


def plain_path(url: bytes) -> str | None:
    """Return the path of a request's target without its query; None for one that no kind of server has.

    Percent-encoding is undone once, and only where it was not needed (RFC 3986, 6.2.2.2).
    """
    raw = url.partition(b"?")[0]
    if len(raw) > LONGEST or not raw.isascii():
        return None
    path = raw.decode("ascii")
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path) if "%" in path else path
