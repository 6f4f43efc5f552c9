"""Who may go to make room, now and later."""

import heapq
import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from operator import attrgetter

from ..choosing import Candidate, Tally, freed_by
from ..choosing.lru import least_recently_used
from ..states import State
from .model import Model
from .pool import Pool
from .steps import PolicyFailed


class Outlook:
    """The resident models as they are at one moment, for all decisions of that moment.

    `forced` is for room that a pinned model needs, or one with a warm window: then only leases protect the others.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._gone: set[str] = set()
        self._split: dict[bool, tuple[list[Model], list[Model]]] = {}

    def choose(self, needed: int, *, forced: bool = False, wanted: Collection[str] = ()) -> list[Model]:
        """Return who goes so that this many bytes are free: none, if all who may go are not enough.

        `wanted` are the pieces of whom the room is for: it frees nothing that they go.
        """
        candidates = self._candidates(self._models(forced)[0], wanted)
        if freed_by(candidates) < needed:
            return []
        chosen = {each.name: each for each in self._ask(candidates, needed)}
        victims = [candidate for candidate in candidates if chosen.get(candidate.name) is candidate]
        tally = _tally(victims)
        if tally.freed < needed:  # a policy of somebody else's
            for candidate in least_recently_used([each for each in candidates if each.name not in chosen]):
                victims.append(candidate)
                tally.add(candidate)
                if tally.freed >= needed:
                    break
        return self._go(victims)

    def all(self) -> list[Model]:
        """Return everybody who may go, and have them go."""
        return self._go(self._candidates(self._models(False)[0], ()))

    def due(self, needed: int, *, forced: bool = False, wanted: Collection[str] = ()) -> float:
        """Return from when on enough may go, if nothing else happens; infinity, if nobody knows."""
        pool = self._pool
        ready, later = self._models(forced)
        tally = _tally(self._candidates(ready, wanted))
        if tally.freed >= needed:
            return pool.now
        drained = sorted((max(pool.now, model.leased_until), model.name) for model in pool.by[State.DRAINING].values())
        waiting = ((model.forced_at if forced else model.at, model.name) for model in later)
        for at, name in heapq.merge(waiting, drained):
            if at == math.inf:
                break
            for candidate in self._candidates((pool.models[name],), wanted):
                tally.add(candidate)
            if tally.freed >= needed:
                return at
        return math.inf

    def _ask(self, candidates: list[Candidate], needed: int) -> list[Candidate]:
        """Ask the policy, which may be somebody else's, and raise whatever it likes."""
        policy = self._pool.rules.policy
        try:
            return list(policy.choose(candidates, needed, self._pool.now))
        except Exception as error:
            self._pool.tell(PolicyFailed(policy.name, f"{type(error).__name__}: {error}"))
            return []

    def _models(self, forced: bool) -> tuple[list[Model], list[Model]]:
        """Return who may go now, and who may not yet, the next one first."""
        if forced not in self._split:
            now, residents = self._pool.now, self._pool.by[State.RESIDENT].values()
            if forced:
                ready = [model for model in residents if model.forced_at <= now]
                later = sorted([model for model in residents if model.forced_at > now], key=attrgetter("forced_at"))
            else:
                ready = [model for model in residents if model.at <= now]
                later = sorted([model for model in residents if model.at > now], key=attrgetter("at"))
            self._split[forced] = ready, later
        ready, later = self._split[forced]
        if self._gone:
            ready = [model for model in ready if model.name not in self._gone]
            self._split[forced] = ready, later
        return ready, later

    def _candidates(self, models: Iterable[Model], wanted: Collection[str]) -> list[Candidate]:
        """Return how a policy sees them; those that free nothing are left out."""
        room = self._pool.room
        special = room.tangled.union(wanted) if wanted else room.tangled
        if not special:
            return [model.candidate for model in models if model.candidate.bytes]
        found = []
        for model in models:
            candidate = model.candidate
            if model.name in special:
                alone, shared = room.describe(model.held, wanted)
                candidate = replace(candidate, bytes=alone, shared=shared)
            if candidate.bytes or candidate.shared:
                found.append(candidate)
        return found

    def _go(self, victims: list[Candidate]) -> list[Model]:
        """Have these go, parts before their ensembles: so one unload takes what both needed."""
        models = [self._pool.models[victim.name] for victim in victims]
        self._gone.update(model.name for model in models)
        return sorted(models, key=lambda model: len(model.held))


def _tally(candidates: Iterable[Candidate]) -> Tally:
    tally = Tally()
    for candidate in candidates:
        tally.add(candidate)
    return tally
