"""Several globs, asked as one question."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

_Question = Callable[[str], object]
_SIGN = re.compile(r"[*?\[]")


class Globs:
    """Globs as `fnmatch.fnmatchcase` has them.

    However many plain names, beginnings and ends there are, each kind is one step; of others, each is a step whose
    beginning up to its first sign is that of the name.
    """

    __slots__ = ("_all", "_by_head", "_ends", "_heads", "_names", "_starts", "globs")

    def __init__(self, globs: Iterable[str]) -> None:
        self.globs = tuple(dict.fromkeys(globs))
        names, starts, ends = set(), [], []
        by_head: dict[str, list[_Question]] = {}
        for glob in self.globs:
            head, star, tail = glob.partition("*")
            if "?" in glob or "[" in glob or "*" in tail:
                by_head.setdefault(_SIGN.split(glob, 1)[0], []).append(_question(glob))
            elif not star:
                names.add(glob)
            elif not tail:
                starts.append(head)
            elif not head:
                ends.append(tail)
            else:
                by_head.setdefault(head, []).append(_question(glob))
        self._all = "" in starts
        self._names = frozenset(names)
        self._starts = tuple(starts)
        self._ends = tuple(ends)
        self._by_head = by_head
        self._heads = tuple({len(head) for head in by_head})

    def match(self, name: str) -> bool:
        """Tell whether one of them matches."""
        return (
            self._all
            or name in self._names
            or name.startswith(self._starts)
            or name.endswith(self._ends)
            or any(question(name) for length in self._heads for question in self._by_head.get(name[:length], ()))
        )


def is_plain(glob: str) -> bool:
    """Tell whether it matches only itself."""
    return _SIGN.search(glob) is None


@lru_cache(maxsize=65_536)
def _question(glob: str) -> _Question:
    """Return a glob's matcher; globs stay the same over most reloads, so they are kept."""
    if "?" in glob or "[" in glob:
        return re.compile(fnmatch.translate(glob)).match
    head, *middle, tail = glob.split("*")
    return _Parts(head, tuple(part for part in middle if part), tail).match


class _Parts:
    """A glob with stars alone: its parts stand in a name one after another.

    Making a regular expression takes 0.2 ms, and a thousand rules would stall the requests meanwhile.
    """

    __slots__ = ("_head", "_least", "_middle", "_tail")

    def __init__(self, head: str, middle: tuple[str, ...], tail: str) -> None:
        self._head = head
        self._middle = middle
        self._tail = tail
        self._least = len(head) + len(tail)

    def match(self, name: str) -> bool:
        if len(name) < self._least or not name.startswith(self._head) or not name.endswith(self._tail):
            return False
        at, end = len(self._head), len(name) - len(self._tail)
        for part in self._middle:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True
