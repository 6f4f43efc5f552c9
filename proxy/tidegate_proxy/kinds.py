"""The kinds of inference servers, and the kind whose protocol a path belongs to.

`routing.Server.kind` names the kind of each server. Code for one kind is in its directory.
"""

import re
from typing import Final

from .openai.kind import OpenAIKind
from .problems import CONTENT_TYPE, Problem
from .server_kind import ServerKind
from .targets import Target, origin_form, plain_path, without_path
from .triton.kind import TritonKind

KINDS: Final[dict[str, ServerKind]] = {"triton": TritonKind(), "openai": OpenAIKind()}
_ROOT = re.compile(r"(?:/servers/[^/]*)?(/[^/]*)")


def problem_body(path: str, problem: Problem, request_id: str) -> tuple[str, bytes]:
    """Return media type and body of a problem, in the form of the protocol of the path, or else of RFC 9457."""
    root = match[1] if (match := _ROOT.match(path)) else ""
    kind = next((kind for kind in KINDS.values() if kind.root == root), None)
    return (CONTENT_TYPE, problem.body(request_id)) if kind is None else kind.problem_body(problem, request_id)


def parse_path(path: str | None) -> Target | None:
    """Return the target of a path, for any kind of server. Return None for a path of no kind."""
    if path is None:
        return None
    return next((target for kind in KINDS.values() if (target := kind.parse_path(path)) is not None), None)


MOST_KNOWN_TARGETS = 20_000
LONGEST_KNOWN = 256  # Bytes of the longest address that is kept.


class KnownTargets(dict[bytes, Target]):
    """A cache of targets by address, filled only by callers with a credential. It ignores `path` before an address."""

    def __init__(self, path: bytes, most: int = MOST_KNOWN_TARGETS) -> None:
        self._path = path
        self._most = most

    def parse_path(self, url: bytes, is_kept: bool) -> Target | None:
        """Return the target of an address, or None. If `is_kept`, keep it for the next request."""
        target = parse_path(plain_path(without_path(origin_form(url), self._path)))
        if target is not None and is_kept and len(url) <= LONGEST_KNOWN:
            if len(self) >= self._most:
                self.clear()
            self[url] = target
        return target
