"""Access rules: what a principal may do. What no rule grants is refused."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tidegate_contracts.routing import AccessRule, Action

from .globs import Globs, is_plain
from .identity import Principal

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
