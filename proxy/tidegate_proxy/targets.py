"""Targets of calls, for any kind of server, and the spelling of names and addresses."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate_contracts.routing import Action

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}"
VERSION_PATTERN = r"[1-9][0-9]{0,15}"
is_name: Callable[[str], object] = re.compile(NAME_PATTERN).fullmatch  # Whether it can name a server or model.
is_version: Callable[[str], object] = re.compile(VERSION_PATTERN).fullmatch
"""Whether it is a valid number of a version."""
_UNRESERVED = re.compile(r"%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+([/?].*)?", re.IGNORECASE)
LONGEST = 1024  # Bytes of the longest path that is parsed.


GrantKey = tuple[str | None, str, Action, str | None]
"""The key of a grant: the named server (or None), the model, the action, and the kind of server (or None)."""


@dataclass(frozen=True, slots=True)
class Target:
    """One operation on a model."""

    kind: str  # The kind of server whose protocol the call uses.
    verb: str
    method: bytes  # The only method that it accepts.
    action: Action  # The action that a rule must grant.
    model: str
    server: str | None = None
    version: str | None = None
    in_body: bool = False  # Whether only the body has the details. The kind's `open_body` reads it.
    needs_no_lease: bool = False  # Whether it loads no model. The kind answers it in `answer_without_lease`.
    may_be_of_sequence: bool = False  # Whether it can belong to a sequence.
    streams: bool = False  # Whether its response can last for as long as data comes.
    requests_usage: bool | None = False
    """Whether the proxy must request the usage for its caller, because the server would not report it otherwise. None
    if the body leaves that unclear: then the call is refused if tokens are limited."""
    grant_key: GrantKey = field(init=False, compare=False)  # The key of its grant.

    def __post_init__(self) -> None:
        object.__setattr__(self, "grant_key", (self.server, self.model, self.action, self.kind))


def origin_form(url: bytes) -> bytes:
    """Return the path and query of a target with scheme and host (RFC 9112, 3.2.2), or any other target unchanged."""
    if url[:1] == b"/" or (match := _ABSOLUTE.fullmatch(url)) is None:
        return url
    rest: bytes = match[1] or b"/"
    return rest if rest[:1] == b"/" else b"/" + rest


def without_path(url: bytes, path: bytes) -> bytes:
    """Return a target in origin form without the path below which the proxy is exposed, which is removed once. Any
    other spelling (encoded, `//`) is returned unchanged, because nothing else here would parse it."""
    rest = url.removeprefix(path)
    if len(rest) == len(url) or rest[:1] not in (b"/", b"?", b""):
        return url
    return rest if rest[:1] == b"/" else b"/" + rest


def plain_path(url: bytes) -> str | None:
    """Return the path of a target without its query. Return None for a path of no kind of server. Unnecessary
    percent-encoding is decoded once (RFC 3986, 6.2.2.2)."""
    raw = url.partition(b"?")[0]
    if len(raw) > LONGEST or not raw.isascii():
        return None
    path = raw.decode("ascii")
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path) if "%" in path else path
