"""Selects the models to evict: the policy chooses, and the core ensures that they free enough."""

import heapq
import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from operator import attrgetter

from tidegate_contracts.lease import State

from ..policies.policy import Candidate, FreedBytes, freed_by, reason
from ..policies.registry import BUILT_IN, least_recently_used
from .break_even import loss, pays
from .messages import PolicyFailed
from .pool import Model, Pool


class VictimSelector:
    """Chooses the victims for all decisions of one moment. With `forced` only leases protect models. `wanted` are the
    pieces of the model that needs the memory: they free nothing."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._gone: set[str] = set()
        self._split: dict[bool, tuple[list[Model], list[Model]]] = {}
        self._expected: list[tuple[float, str]] | None = None

    def choose(
        self, needed: int, *, forced: bool = False, wanted: Collection[str] = (), is_plan: bool = False
    ) -> list[Model]:
        """Return models whose eviction frees `needed` bytes, or none if all evictable ones are not enough. With
        `is_plan` nothing is evicted, and a custom policy is not called, because it may be slow."""
        candidates = self._candidates(self._models(forced)[0], wanted)
        if freed_by(candidates) < needed:
            return []
        is_foreign = self._pool.settings.policy.name not in BUILT_IN
        chosen = set() if is_plan and is_foreign else self._call_policy(candidates, needed)
        victims = [candidate for candidate in candidates if id(candidate) in chosen]
        freed = FreedBytes(victims)
        if freed.total < needed:  # A custom policy chose too few.
            for candidate in least_recently_used([each for each in candidates if id(each) not in chosen]):
                victims.append(candidate)
                freed.add(candidate)
                if freed.total >= needed:
                    break
        return self._taken(victims)

    def choose_paying(self, needed: int, model: Model) -> list[Model]:
        """Return the models whose eviction for another costs their callers least: of the evictable ones, or of all
        without a lease. The latter only if they cost less, and if it pays or a caller has returned on time."""
        pool, best, least = self._pool, list[Candidate](), math.inf
        ready, unleased = self._models(False)[0], self._models(True)[0]
        is_back = any(waiter.is_back for waiter in model.waiters.values())
        for models in (ready, [each for each in unleased if pool.breaks_even(each) or each.evictable_at <= pool.now]):
            victims, lost = self._cheapest(models, needed, model)
            if lost < least and (best or models is ready or is_back or pays(pool, model, victims)):
                best, least = victims, lost
        return self._taken(best)

    def choose_ahead(self, needed: int, model: Model) -> list[Model]:
        """Return evictable models that free `needed` bytes, if that costs less than a cold load of the model."""
        victims, lost = self._cheapest(self._models(False)[0], needed, model)
        saved = min(self._pool.load_estimate(model), self._pool.settings.wait_seconds)
        return self._taken(victims if lost < saved else [])

    def _cheapest(self, models: list[Model], needed: int, wanted: Model) -> tuple[list[Candidate], float]:
        """Return the policy's choice and the loss of their callers. No models at infinite loss if they are too few."""
        candidates = self._candidates(models, wanted.pieces)
        if freed_by(candidates) < needed:
            return [], math.inf
        chosen = self._call_policy(candidates, needed)
        victims = [candidate for candidate in candidates if id(candidate) in chosen]
        return victims, loss(self._pool, victims)

    def all(self) -> list[Model]:
        return self._taken(self._candidates(self._models(False)[0], ()))

    def due(self, needed: int, *, forced: bool = False, wanted: Collection[str] = ()) -> float:
        """Return when `needed` bytes may be freed, as things stand. Infinity: unknown."""
        pool = self._pool
        ready, later = self._models(forced)
        freed = FreedBytes(self._candidates(ready, wanted))
        if freed.total >= needed:
            return pool.now
        draining = pool.by_state[State.DRAINING].values()
        drained = sorted((max(pool.now, model.leased_until), model.name) for model in draining)
        waiting = ((model.evictable_if_forced_at, model.name) for model in later) if forced else self._likely(later)
        for at, name in heapq.merge(waiting, drained):
            if at == math.inf:
                break
            for candidate in self._candidates((pool.models[name],), wanted):
                freed.add(candidate)
            if freed.total >= needed:
                return at
        return math.inf

    def _likely(self, later: list[Model]) -> list[tuple[float, str]]:
        if self._expected is None:
            self._expected = sorted((self._pool.likely_at(model), model.name) for model in later)
        return self._expected

    def _call_policy(self, candidates: list[Candidate], needed: int) -> set[int]:
        """Call the policy, and report its failure. Return the `id`s of its choice."""
        policy = self._pool.settings.policy
        try:
            return {id(each) for each in policy.choose(candidates, needed, self._pool.now)}
        except Exception as error:
            self._pool.report(PolicyFailed(policy.name, reason(error)))
            return set()

    def _models(self, forced: bool) -> tuple[list[Model], list[Model]]:
        """Return the models that can be evicted now, and those that can be later, the next one first."""
        if forced not in self._split:
            now, residents = self._pool.now, self._pool.by_state[State.RESIDENT].values()
            when = attrgetter("evictable_if_forced_at" if forced else "evictable_at")
            ready = [model for model in residents if when(model) <= now]
            later = sorted([model for model in residents if when(model) > now], key=when)
            self._split[forced] = ready, later
        ready, later = self._split[forced]
        if self._gone:
            ready = [model for model in ready if model.name not in self._gone]
            self._split[forced] = ready, later
        return ready, later

    def _candidates(self, models: Iterable[Model], wanted: Collection[str]) -> list[Candidate]:
        """Return the policy's view of these models, without those whose eviction frees nothing."""
        ledger = self._pool.ledger
        special = ledger.tangled.union(wanted) if wanted else ledger.tangled
        if not special:
            return [model.candidate for model in models if model.candidate.bytes]
        found = []
        for model in models:
            candidate = model.candidate
            if model.name in special:
                alone, shared = ledger.describe(model.held, wanted)
                candidate = replace(candidate, bytes=alone, shared=shared)
            if candidate.bytes or candidate.shared:
                found.append(candidate)
        return found

    def _taken(self, victims: list[Candidate]) -> list[Model]:
        """Return these models and exclude them from now on. Parts come first, so that one unload covers them."""
        models = [self._pool.models[victim.name] for victim in victims]
        self._gone.update(model.name for model in models)
        return sorted(models, key=lambda model: len(model.held))
