"""Access rules: what a principal may do. What no rule grants is refused."""

import asyncio
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from tidegate_contracts.routing import AccessRule, Action

from .identity import Principal

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


MOST_RIGHTS = 4096
"""Principals, and sets of rules, whose rights are kept."""


class _Rule:
    __slots__ = ("actions", "models", "servers", "source")

    def __init__(self, rule: AccessRule) -> None:
        self.actions = frozenset(rule.actions)
        self.servers = Globs(rule.servers)
        self.models = rule.models
        self.source = rule.source


class Rights:
    """What a set of rules grants: a question about a model takes about as long for a thousand rules as for one."""

    __slots__ = ("_models", "_rules")

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = rules
        self._models: dict[tuple[str, str], Globs] = {}

    def allow(self, action: Action, server: str, model: str) -> bool:
        """Tell whether a rule grants it. `server` is one of the routing table's: their number bounds what is kept."""
        models = self._models.get((action, server))
        if models is None:
            models = Globs(
                glob
                for rule in self._rules
                if action in rule.actions and rule.servers.match(server)
                for glob in rule.models
            )
            self._models[action, server] = models
        return models.match(model)


class _Named:
    """Which rules name somebody, by plain names and by globs."""

    def __init__(self) -> None:
        self._plain: dict[str, list[int]] = defaultdict(list)
        self._globs: dict[str, tuple[Globs, list[int]]] = {}

    def add(self, globs: Iterable[str], rule: int) -> None:
        for glob in globs:
            if is_plain(glob):
                self._plain[glob].append(rule)
            else:
                self._globs.setdefault(glob, (Globs((glob,)), []))[1].append(rule)

    def of(self, name: str) -> Iterator[int]:
        yield from self._plain.get(name, ())
        for globs, rules in self._globs.values():
            if globs.match(name):
                yield from rules


class Rules:
    """All rules of a table; once it is made it is never changed."""

    def __init__(self, rules: Iterable[AccessRule] = ()) -> None:
        self._rules: list[_Rule] = []
        self._principals = _Named()
        self._groups = _Named()
        self._of: dict[Principal, Rights] = {}
        self._shared: dict[frozenset[int], Rights] = {}
        for rule in rules:
            self.add(rule)

    def add(self, rule: AccessRule) -> None:
        """Add a rule, while the table is being made."""
        self._principals.add(rule.principals, len(self._rules))
        self._groups.add(rule.groups, len(self._rules))
        self._rules.append(_Rule(rule))

    def of(self, principal: Principal) -> Rights:
        """Return a principal's rights; those whom the same rules name share them."""
        rights = self._of.get(principal)
        if rights is None:
            which = set(self._principals.of(principal.name))
            for group in principal.groups:
                which.update(self._groups.of(group))
            which = {number for number in which if self._rules[number].source in (None, principal.source)}
            if len(self._of) >= MOST_RIGHTS:
                self._of.clear()
                self._shared.clear()
            key = frozenset(which)
            rights = self._shared.get(key)
            if rights is None:
                rights = self._shared[key] = Rights([self._rules[number] for number in sorted(which)])
            self._of[principal] = rights
        return rights


async def build_rules(rules: Sequence[AccessRule]) -> Rules:
    """Return the rules of a table; other work goes on meanwhile."""
    built = Rules()
    for number, rule in enumerate(rules):
        built.add(rule)
        if number % 50 == 49:
            await asyncio.sleep(0)
    return built
