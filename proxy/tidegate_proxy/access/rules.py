"""Access rules: what a principal may do. What no rule grants is refused."""

import asyncio
import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count
from typing import NamedTuple

from tidegate_contracts.routing import AccessRule, Action

from .identity import Principal

_Question = Callable[[str], object]
_SIGN = re.compile(r"[*?\[]")


class Globs:
    """Globs as `fnmatch.fnmatchcase` has them.

    However many plain names, beginnings and ends there are, each kind is one step; of others, each is a step whose
    beginning up to its first sign is that of the name.
    """

    __slots__ = ("_by_head", "_ends", "_heads", "_names", "_starts", "globs")

    def __init__(self, globs: Iterable[str]) -> None:
        self.globs = tuple(dict.fromkeys(globs))
        self._names: set[str] = set()
        starts, ends = [], []
        self._by_head: dict[str, list[_Question]] = defaultdict(list)
        for glob in self.globs:
            if _is_plain(glob):
                self._names.add(glob)
            elif glob[-1] == "*" and _is_plain(glob[:-1]):
                starts.append(glob[:-1])
            elif glob[0] == "*" and _is_plain(glob[1:]):
                ends.append(glob[1:])
            else:
                self._by_head[_SIGN.split(glob, 1)[0]].append(_question(glob))
        self._starts, self._ends = tuple(starts), tuple(ends)
        self._heads = tuple({len(head) for head in self._by_head})

    def match(self, name: str) -> bool:
        """Tell whether one of them matches."""
        return (
            name in self._names
            or name.startswith(self._starts)
            or name.endswith(self._ends)
            or any(question(name) for length in self._heads for question in self._by_head.get(name[:length], ()))
        )


def _is_plain(glob: str) -> bool:
    """Tell whether it matches only itself."""
    return _SIGN.search(glob) is None


@lru_cache(maxsize=65_536)
def _question(glob: str) -> _Question:
    """Return a glob's matcher, which takes 0.2 ms to make; globs stay the same over most reloads, so they are kept."""
    return re.compile(fnmatch.translate(glob)).match


MOST_RIGHTS = 4096  # Principals, and sets of rules, whose rights are kept.


class _Rule(NamedTuple):
    actions: Sequence[Action]
    servers: Globs
    models: Globs
    source: str | None


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
            which = [rule for rule in self._rules if action in rule.actions and rule.servers.match(server)]
            models = self._models[action, server] = Globs(chain.from_iterable(rule.models.globs for rule in which))
        return models.match(model)


class _Named:
    """Which rules name somebody, by plain names and by globs."""

    def __init__(self) -> None:
        self._plain: dict[str, list[int]] = defaultdict(list)
        self._globs: dict[str, tuple[Globs, list[int]]] = {}

    def add(self, globs: Iterable[str], rule: int) -> None:
        for glob in globs:
            if _is_plain(glob):
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
        self._rules.append(_Rule(rule.actions, Globs(rule.servers), Globs(rule.models), rule.source))

    def of(self, principal: Principal) -> Rights:
        """Return a principal's rights; principals that the same rules name share them."""
        rights = self._of.get(principal)
        if rights is None:
            which = set(self._principals.of(principal.name))
            for group in principal.groups:
                which.update(self._groups.of(group))
            key = frozenset(number for number in which if self._rules[number].source in (None, principal.source))
            if len(self._of) >= MOST_RIGHTS:
                self._of.clear()
                self._shared.clear()
            rights = self._shared.get(key)
            if rights is None:
                rights = self._shared[key] = Rights([self._rules[number] for number in sorted(key)])
            self._of[principal] = rights
        return rights


async def build_rules(rules: Sequence[AccessRule]) -> Rules:
    """Return the rules of a table; other work goes on meanwhile."""
    built, number = Rules(), count(1)
    for rule in rules:
        for glob in (*rule.principals, *rule.groups, *rule.servers, *rule.models):
            Globs((glob,))  # what takes long is kept
            if next(number) % 20 == 0:
                await asyncio.sleep(0)
        built.add(rule)
    return built
