"""The search for the cheapest answer: one pool of slices of one size, then what is cheaper than the best of these.

Cheaper ones are pools of two sizes that share the models between them, models with a slice of their own, and pinned
models. There are far too many to simulate all. Which of them may do is estimated: they follow from an order of the
models (by calls, by size), and then from changes of one model at a time. The most promising ones are simulated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations_with_replacement
from math import ceil

from tidegate_eviction.simulate.trace import Trace, TracedModel

from stacks.definition.mig_cuts import fewest_gpus
from stacks.definition.pools import OnDemand

from .answers import LOADING, Answer, PlannedPool, Row, best, capacity_bytes, dedicated
from .estimates import Estimates
from .simulations import Simulations
from .slices import Gpu, GpuSlice

MOST_GPUS = 8  # That are tried for one answer.
MOST_SLICES = 8  # Of both sizes of a mixed answer.
EFFORT, LEAST_EFFORT = 6 * 10**6, 8
"""How many requests are simulated of mixed answers at the most; but so many times the whole trace in any case."""
_SHORT = 50_000  # Requests of a trace of which more is simulated than has to be.
_AT_ONCE = 4  # Mixed answers that are simulated beside each other.
_STARTS = 2  # Ways to divide the models that are improved upon.
_SLACK, _FAR = 1.5, 4.0
"""How many times more than the target allows may meet a cold model by estimate, to be simulated; to be improved."""

Shape = tuple[tuple[GpuSlice, int], ...]
"""Slices of one kind, or of two, and how many of each."""
Order = tuple[str, ...]


class Search:
    """One search, for one target."""

    def __init__(self, simulations: Simulations, gpu: Gpu, target: float, loading: OnDemand = LOADING) -> None:
        self._run, self._gpu, self._target, self._loading = simulations, gpu, target, loading
        self._trace: Trace = simulations.trace
        self._models = {model.name: model for model in self._trace.models}
        self._room = {one: capacity_bytes(gpu, one) for one in gpu.slices}
        self._dearest = max(dedicated(gpu, self._trace)[0], Fraction(1))
        """GPUs beyond which nobody would share, since an endpoint for each model takes no more. One is always tried."""
        self._estimates = Estimates(self._trace)
        self._allowed = (1 - target) * len(self._trace)  # Calls that may meet a cold model.
        self.rows: dict[Answer, Row] = {}

    def rows_of(self, answers: Sequence[Answer], what: str) -> list[Row]:
        """Simulate what was not yet, and return all in the same order."""
        new = [answer for answer in dict.fromkeys(answers) if answer not in self.rows]
        found = self._run.run([answer.simulated() for answer in new], what) if new else []
        for answer, figures in zip(new, found, strict=True):
            self.rows[answer] = Row(str(answer), answer.share, figures, answer)
        return [self.rows[answer] for answer in answers]

    def plain(self) -> list[Row]:
        """Return pools of slices of one kind: the cheapest that meets the target, and those around it.

        How many slices of each kind will do is estimated, and simulated. Then what is cheaper than the best of these is
        simulated too, as many slices of each kind as cost less, unless by estimate they miss the target by far.
        """
        counts = {one: self._likely(one) for one in self._gpu.slices}
        cold = {one: self._cold(self._one_pool(one, count)) for one, count in counts.items()}
        promised = [one for one in counts if cold[one] <= self._allowed] or list(counts)
        found = self._counted({one: counts[one] for one in promised})
        while (now := best(found, self._target)) is None:
            counts = {one: count + 1 for one, count in counts.items() if count < self._most(one)}
            if not counts:
                return found
            found += self._counted(counts)
        while True:
            share = now.share or self._dearest
            cheaper = {one: min(self._most(one), ceil(share / one.share) - 1) for one in self._gpu.slices}
            tried = {one: count for one, count in cheaper.items() if count and self._is_near(one, count)}
            found += self._counted({one: count for one, count in tried.items() if not self._is_known(one, count)})
            before, now = now, best(found, self._target) or now
            if now is before:
                return found

    def _counted(self, counts: dict[GpuSlice, int]) -> list[Row]:
        return self.rows_of([self._one_pool(one, count) for one, count in counts.items()], "slices of one size")

    def _likely(self, one: GpuSlice) -> int:
        """Return how many slices of a kind meet the target by estimate; where none do, how many come closest."""
        counts = range(1, self._most(one) + 1)
        cold = {count: self._cold(self._one_pool(one, count)) for count in counts}
        return next((count for count in counts if cold[count] <= self._allowed), min(counts, key=cold.__getitem__))

    def _is_near(self, one: GpuSlice, count: int) -> bool:
        """Say whether so many slices of a kind may meet the target, as far as estimates tell; of a short trace it is
        shown how far from it they are."""
        return len(self._trace) <= _SHORT or self._cold(self._one_pool(one, count)) <= _FAR * self._allowed

    def _is_known(self, one: GpuSlice, count: int) -> bool:
        return self._one_pool(one, count) in self.rows

    def _most(self, one: GpuSlice) -> int:
        """Return how many slices of a kind are tried at the most."""
        return max(1, min(self._gpu.most(one) * MOST_GPUS, int(self._dearest / one.share)))

    def _one_pool(self, one: GpuSlice, count: int) -> Answer:
        return self._answer(PlannedPool(one, count, frozenset(self._models)))

    def _answer(self, *pools: PlannedPool) -> Answer:
        return Answer(self._gpu, pools, self._loading)

    # ---- mixed answers ----

    def mixed(self, plain: Sequence[Row]) -> list[Row]:
        """Return mixed answers that were tried, all cheaper than the best plain one: the cheapest come first.

        Which ones may meet the target is estimated; where a simulation shows that the estimates promise too much,
        others have to promise more.
        """
        least = best(plain, self._target)
        limit = (least and least.share) or self._dearest
        allowed = self._allowed
        promised = [each for shape in self._shapes(limit) if (each := self._best_of(shape, allowed)) is not None]
        promised.sort(key=lambda each: (each[1].share, each[0]))
        until = self._run.simulated + max(EFFORT, LEAST_EFFORT * len(self._trace))
        found: list[Row] = []
        most = _SLACK * allowed
        while promised and self._run.simulated < until and best(found, self._target) is None:
            now, promised = promised[:_AT_ONCE], promised[_AT_ONCE:]
            found += (rows := self.rows_of([answer for _, answer in now], f"mixed answers, {len(promised)} left"))
            for row, (cold, _) in zip(rows, now, strict=True):
                if (met := row.figures.requests - row.figures.warm) > allowed:
                    most = min(most, max(_SLACK * cold * allowed / met, allowed / 10))
            promised = [each for each in promised if each[0] <= most]
        return found

    def _shapes(self, limit: Fraction) -> Iterator[Shape]:
        """Yield what is cheaper than the limit: slices of one kind, or of two, larger ones first.

        Of the slices of as much memory the cheapest will do.
        """
        kinds = {self._room[one]: one for one in sorted(self._gpu.slices, key=lambda one: one.share, reverse=True)}
        parts = [
            (one, count)
            for _, one in sorted(kinds.items(), reverse=True)
            for count in range(1, MOST_SLICES + 1)
            if one.share * count < limit
        ]
        for shape in [(part,) for part in parts] + list(combinations_with_replacement(parts, 2)):
            if _share_of(shape) < limit and self._stands(shape):
                yield shape

    def _stands(self, shape: Shape) -> bool:
        """Say whether these slices stand on as few GPUs as their shares come to, and are not too many."""
        slices: dict[str, int] = {}
        for one, count in shape:
            slices[one.profile] = slices.get(one.profile, 0) + count
        whole = slices.pop("", 0)
        cut = fewest_gpus(self._gpu.product, slices) if self._gpu.product else 0
        return whole + cut <= ceil(_share_of(shape)) and whole + sum(slices.values()) <= MOST_SLICES

    def _best_of(self, shape: Shape, allowed: float) -> tuple[float, Answer] | None:
        """Return the calls that would meet a cold model, by estimate, and how models share a shape's pools so that they
        are fewest; None where they are too many by far."""
        every = frozenset(self._models)
        if len(shape) == 1:
            [(one, count)] = shape
            return self._with_pins(self._answer(self._pool(one, count, every)), allowed)
        starts = {part for order in self._orders for part in self._parts(order, shape) if part and part != every}
        estimated = sorted((self._cold(self._of_two(shape, part)), sorted(part)) for part in starts)
        found = None
        for cold, part in estimated[:_STARTS]:
            if cold <= _FAR * allowed:
                each = self._with_pins(self._climbed(shape, frozenset(part), cold), allowed)
                found = each if found is None or (each and each[0] < found[0]) else found
        return found

    def _climbed(self, shape: Shape, first: frozenset[str], cold: float) -> Answer:
        """Return what comes of moving one model after the other to the other pool, as long as that serves."""
        while True:
            moved = [first ^ {name} for name in sorted(self._models)]
            tried = [
                (self._cold(self._of_two(shape, part)), place)
                for place, part in enumerate(moved)
                if 0 < len(part) < len(self._models)
            ]
            less, place = min(tried, default=(cold, 0))
            if less >= cold:
                return self._of_two(shape, first)
            first, cold = moved[place], less

    def _with_pins(self, answer: Answer, allowed: float) -> tuple[float, Answer] | None:
        """Return an answer with the pins that serve best, of half a slice at the most, and what it promises."""
        cold = self._cold(answer)
        if cold > _FAR * allowed:
            return None
        while cold > 0:
            tried = [(self._cold(each), place, each) for place, each in enumerate(self._pinning(answer))]
            less, _, following = min(tried, default=(cold, 0, answer))
            if less >= cold or cold <= allowed / 2:
                break
            answer, cold = following, less
        return (cold, answer) if cold <= _SLACK * allowed and not answer.is_plain else None

    def _pinning(self, answer: Answer) -> Iterator[Answer]:
        """Yield an answer with one model more that is pinned."""
        for place, pool in enumerate(answer.pools):
            for name in sorted(pool.models - pool.pinned):
                pinned = pool.pinned | {name}
                if self._bytes(pinned) <= self._room[pool.on] // 2:
                    others = list(answer.pools)
                    others[place] = replace(pool, pinned=pinned)
                    yield replace(answer, pools=tuple(others))

    def _cold(self, answer: Answer) -> float:
        """Return the calls that would meet a cold model, by estimate, without the first load of each."""
        return sum(
            self._estimates.cold(pool.models, self._room[pool.on], pool.replicas, pool.pinned, started=True)
            for pool in answer.pools
        )

    def _parts(self, order: Order, shape: Shape) -> Iterator[frozenset[str]]:
        """Yield the models of the first of two pools, as an order of them has it."""
        every = frozenset(self._models)
        rooms = [self._room[one] * count for one, count in shape]
        least = self._room[shape[1][0]]
        large = frozenset(name for name, model in self._models.items() if model.footprint_bytes > least)
        yield large | self._first(order, self._bytes(every) * rooms[0] // sum(rooms))  # as much as its part of the room
        yield large | self._first(order, rooms[0])  # those that come first have all room on it
        yield large | (every - self._first(order, rooms[1]))  # … on the other one
        yield large | {order[0]}  # one has it for itself

    def _of_two(self, shape: Shape, first: frozenset[str]) -> Answer:
        """Return two pools, of which the first has these models."""
        parts = first, frozenset(self._models) - first
        return self._answer(*(self._pool(one, count, part) for (one, count), part in zip(shape, parts, strict=True)))

    def _pool(self, one: GpuSlice, count: int, models: frozenset[str]) -> PlannedPool:
        """Return a pool; where all its models have room on one slice, all are pinned."""
        fits = count == 1 and self._bytes(models) <= self._room[one]
        return PlannedPool(one, count, models, models if fits else frozenset())

    def _bytes(self, models: frozenset[str]) -> int:
        return sum(self._models[name].footprint_bytes for name in models)

    def _first(self, order: Order, room: int) -> frozenset[str]:
        """Return the models that fit, the first ones first; those too large for what is left are passed over."""
        taken: set[str] = set()
        for name in order:
            if self._models[name].footprint_bytes <= room:
                taken.add(name)
                room -= self._models[name].footprint_bytes
        return frozenset(taken)

    @cached_property
    def _orders(self) -> list[Order]:
        """The models in the orders in which pools get them: by calls, by size, by what their loads take."""
        calls = {name: self._run.requests([name]) for name in self._models}

        def ordered(worth: Callable[[TracedModel], float]) -> Order:
            models = sorted(self._models.values(), key=lambda model: (-worth(model), model.name))
            return tuple(model.name for model in models)

        return [
            ordered(lambda model: calls[model.name] / model.footprint_bytes),
            ordered(lambda model: model.footprint_bytes),
            ordered(lambda model: model.load_seconds),
        ]


def _share_of(shape: Shape) -> Fraction:
    return sum((one.share * count for one, count in shape), Fraction())
