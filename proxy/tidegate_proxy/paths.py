"""What a path of the KServe v2 protocol asks for.

Only these spellings exist; the path that goes upstream is written anew from what was understood, so that no spelling of
a caller's ever reaches Triton. Model control, shared memory, trace and log settings have no spelling at all.
Protocol: KServe v2 (open inference protocol) with Triton's extensions for generate, statistics and configuration.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

Verb = Literal["infer", "generate", "generate_stream", "ready", "config", "stats", "metadata"]
Action = Literal["infer", "inspect"]

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}"
VERSION_PATTERN = r"[1-9][0-9]{0,15}"
_PATH = re.compile(
    rf"(?:/servers/(?P<server>{NAME_PATTERN}))?/v2/models/(?P<model>{NAME_PATTERN})(?:/versions/(?P<version>{VERSION_PATTERN}))?"
    r"(?:/(?P<verb>infer|generate|generate_stream|ready|config|stats))?"
)
_UNRESERVED = re.compile(r"%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
_POSTED = frozenset({"infer", "generate", "generate_stream"})
_ABSOLUTE = re.compile(rb"https?://[^/?#@]+([/?].*)?", re.IGNORECASE)
LONGEST = 1024
"""Bytes of a path that is looked at."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that can be asked of a model."""

    verb: Verb
    server: str | None
    model: str
    version: str | None

    method: bytes = field(init=False)
    """The one method that it takes."""
    action: Action = field(init=False)
    """What a rule must grant for it."""

    def __post_init__(self) -> None:
        posted = self.verb in _POSTED
        object.__setattr__(self, "method", b"POST" if posted else b"GET")
        object.__setattr__(self, "action", "infer" if posted else "inspect")

    def path(self, version: str | None) -> bytes:
        """Return Triton's path for it, with the version that was chosen."""
        which = f"/versions/{version}" if version else ""
        tail = "" if self.verb == "metadata" else f"/{self.verb}"
        return f"/v2/models/{self.model}{which}{tail}".encode()


PREDICT = Target("infer", None, "predict", None)
"""What `/predict` asks for before its body is known."""
ANYTHING = b"/*"
"""Where the application answers `OPTIONS *`, which asks about the proxy as a whole."""


def origin_form(url: bytes) -> bytes:
    """Return the path, and what follows it, of a request's target that names scheme and host, too (RFC 9112, 3.2.2).

    Any other target is returned as it is.
    """
    if url[:1] == b"/" or (match := _ABSOLUTE.fullmatch(url)) is None:
        return url
    rest: bytes = match[1] or b"/"
    return rest if rest[:1] == b"/" else b"/" + rest


def understand(url: bytes) -> Target | None:
    """Return what a request's target (path, perhaps with a query) asks of a model, or None when it asks none.

    Triton's protocol has no queries, so none is passed on. Percent-encoding is undone once, and only where it was not
    needed (RFC 3986, 6.2.2.2): whatever else is encoded is no name.
    """
    raw = url.partition(b"?")[0]
    if len(raw) > LONGEST:
        return None
    try:
        path = raw.decode("ascii")
    except UnicodeDecodeError:
        return None
    if "%" in path:
        path = _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)
    if path == "/predict":
        return PREDICT
    match = _PATH.fullmatch(path)
    if match is None or (match["model"] == "stats" and not match["verb"] and not match["version"]):
        return None  # `/v2/models/stats` is the statistics of all models
    verb: Verb = match["verb"] or "metadata"  # type: ignore[assignment]  # one of those in the pattern
    return Target(verb, match["server"], match["model"], match["version"])


def is_name(text: str) -> bool:
    """Tell whether a server or a model can be called this."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def is_version(text: str) -> bool:
    """Tell whether it is a number that a version can have."""
    return re.fullmatch(VERSION_PATTERN, text) is not None
