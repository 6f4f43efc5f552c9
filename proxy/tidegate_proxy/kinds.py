"""Which kinds of inference servers there are, and whose protocol a path is of.

`routing.Server.kind` names the kind of each server. Everything that is true of one kind alone stands in its folder.
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
    """Return how a problem is told at an address: as the protocol has it that it is of, else by RFC 9457."""
    root = match[1] if (match := _ROOT.match(path)) else ""
    kind = next((kind for kind in KINDS.values() if kind.root == root), None)
    return (CONTENT_TYPE, problem.body(request_id)) if kind is None else kind.problem_body(problem, request_id)


def parse_path(path: str | None) -> Target | None:
    """Return what a path asks of a model, whatever the kind of server; None for a path of none."""
    if path is None:
        return None
    return next((target for kind in KINDS.values() if (target := kind.parse_path(path)) is not None), None)


MOST_KNOWN_TARGETS = 20_000
LONGEST_KNOWN = 256  # Bytes of one that is kept.


class KnownTargets(dict[bytes, Target]):
    """What addresses of models ask, for those that callers with a credential have used.

    Below `path` everything is asked as it is without it.
    """

    def __init__(self, path: bytes) -> None:
        self._path = path

    def parse_path(self, url: bytes, is_kept: bool) -> Target | None:
        """Return what an address asks of a model, None for one that asks nothing; keep it for the next request."""
        target = parse_path(plain_path(without_path(origin_form(url), self._path)))
        if target is not None and is_kept and len(url) <= LONGEST_KNOWN:
            if len(self) >= MOST_KNOWN_TARGETS:
                self.clear()
            self[url] = target
        return target
