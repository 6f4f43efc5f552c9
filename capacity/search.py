"""The search for the cheapest answer: one pool of slices of one size, then what is cheaper than the best of these.

Cheaper ones are pools of two sizes that share the models between them, models with a slice of their own, and pinned
models. There are far too many to simulate all: tried are those that follow from an order of the models (by what their
callers lose, how often they are called, how large they are), and then changes of one model at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from math import ceil

from tidegate_eviction.simulate.trace import Trace, TracedModel

from stacks.definition.mig_cuts import fewest_gpus

from .answers import Answer, PlannedPool, Row, best, capacity_bytes, dedicated
from .simulations import Simulations
from .slices import Gpu, GpuSlice

MOST_GPUS = 8  # That are tried for one answer.
MOST_SLICES = 8  # Of both sizes of a mixed answer.
EFFORT = 60
"""How often, at the most, mixed answers have the whole trace simulated."""
_HOPE = 3.0  # How many times more than the target allows may meet a cold model where a small change may do.
_CHANGED = 3  # Models whose callers lose most are moved, or pinned.
_PARTS, _KEPT = 4, 4  # Ways to divide models in an order; ways that are tried for each shape.

Shape = tuple[tuple[GpuSlice, int], ...]
"""Slices of one kind, or of two, and how many of each."""
Order = tuple[str, ...]
Way = tuple[Order, int]


class Search:
    """One search, for one target."""

    def __init__(self, simulations: Simulations, gpu: Gpu, target: float) -> None:
        self._run, self._gpu, self._target = simulations, gpu, target
        self._trace: Trace = simulations.trace
        self._models = {model.name: model for model in self._trace.models}
        self._room = {one: capacity_bytes(gpu, one) for one in gpu.slices}
        self._dearest = max(dedicated(gpu, self._trace)[0], Fraction(1))
        """GPUs beyond which nobody would share, since an endpoint for each model takes no more. One is always tried."""
        self.rows: dict[Answer, Row] = {}

    def rows_of(self, answers: Sequence[Answer], what: str) -> list[Row]:
        """Simulate what was not yet, and return all in the same order."""
        new = [answer for answer in dict.fromkeys(answers) if answer not in self.rows]
        found = self._run.run([answer.simulated() for answer in new], what) if new else []
        for answer, figures in zip(new, found, strict=True):
            self.rows[answer] = Row(str(answer), answer.share, figures, answer)
        return [self.rows[answer] for answer in answers]

    def plain(self) -> list[Row]:
        """Return one pool of each slice, for each number that one GPU has; of more GPUs where none of these will do."""
        found: list[Row] = []
        counts = dict.fromkeys(self._gpu.slices, 1)
        while counts:
            rows = self.rows_of([self._one_pool(one, count) for one, count in counts.items()], "slices of one size")
            found += rows
            counts = {
                one: count + 1
                for (one, count), row in zip(counts.items(), rows, strict=True)
                if count < self._gpu.most(one) and not row.figures.is_roomy
            }
        if best(found, self._target) is None:
            found += [row for one in self._gpu.slices for row in self._over_gpus(one)]
        return found

    def _over_gpus(self, one: GpuSlice) -> Iterator[Row]:
        """Yield how many slices of a kind over several GPUs meet the target, or as many as are tried; by halving."""
        low = self._gpu.most(one)
        last = self.rows.get(self._one_pool(one, low))
        most = min(low * MOST_GPUS, int(self._dearest / one.share))
        if last is None or last.figures.is_roomy or most <= low:
            return
        high, dearest = most, self._count(one, most)
        while dearest.meets(self._target) and high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._count(one, middle).meets(self._target) else (middle, high)
        yield self._count(one, high)

    def _count(self, one: GpuSlice, count: int) -> Row:
        return self.rows_of([self._one_pool(one, count)], f"{count} × {one}")[0]

    def _one_pool(self, one: GpuSlice, count: int) -> Answer:
        return Answer(self._gpu, (PlannedPool(one, count, frozenset(self._models)),))

    # ---- mixed answers ----

    def mixed(self, plain: Sequence[Row]) -> list[Row]:
        """Return mixed answers that were tried, all cheaper than the best plain one.

        The shapes in the middle of those that may do come first: where one meets the target, none that is as dear is
        looked at any more; where one is far from it, none that has as little room.
        """
        found: list[Row] = []
        least = best(plain, self._target)
        limit = (least and least.share) or self._dearest
        until = self._run.simulated + EFFORT * len(self._trace)
        shapes = sorted(self._shapes(limit, plain), key=lambda shape: (_share_of(shape), self._room_of(shape)))
        ways = [(order, part) for order in self._orders(plain) for part in range(_PARTS)]
        while shapes and self._run.simulated < until:
            shape = shapes.pop(len(shapes) // 2)
            what = f"mixed answers, {len(shapes) + 1} shapes left"
            tried = self.rows_of([*dict.fromkeys(self._divided(shape, ways))], what)
            ways = self._kept(shape, ways)
            if not tried:
                continue
            closest = max(tried, key=_warm)
            found += (rows := [*tried, *self._changed(closest, until, what)])
            if best(rows, self._target):
                shapes = [each for each in shapes if _share_of(each) < _share_of(shape)]
            elif not self._is_hopeful(closest):
                shapes = [each for each in shapes if self._room_of(each) > self._room_of(shape)]
        return found

    def _shapes(self, limit: Fraction, plain: Sequence[Row]) -> Iterator[Shape]:
        """Yield what is cheaper than the limit: slices of one kind, or of two, larger ones first.

        Of the slices of as much memory the cheapest will do. Left out is what has less room than a slice that is far
        too small for all models together.
        """
        kinds = {self._room[one]: one for one in sorted(self._gpu.slices, key=lambda one: one.share, reverse=True)}
        parts = [
            (one, count)
            for _, one in sorted(kinds.items(), reverse=True)
            for count in range(1, MOST_SLICES + 1)
            if one.share * count < limit
        ]
        far = [row.answer.pools[0] for row in plain if row.answer and not self._is_hopeful(row)]
        too_little = max((self._room[pool.on] for pool in far if pool.replicas == 1), default=0)
        shapes = [(part,) for part in parts] + list(combinations_with_replacement(parts, 2))
        for shape in shapes:
            if _share_of(shape) < limit and self._room_of(shape) > too_little and self._stands(shape):
                yield shape

    def _room_of(self, shape: Shape) -> int:
        return sum(self._room[one] * count for one, count in shape)

    def _stands(self, shape: Shape) -> bool:
        """Say whether these slices stand on as few GPUs as their shares come to, and are not too many."""
        slices: dict[str, int] = {}
        for one, count in shape:
            slices[one.profile] = slices.get(one.profile, 0) + count
        whole = slices.pop("", 0)
        cut = fewest_gpus(self._gpu.product, slices) if self._gpu.product else 0
        return whole + cut <= ceil(_share_of(shape)) and whole + sum(slices.values()) <= MOST_SLICES

    def _is_hopeful(self, row: Row) -> bool:
        """Say whether a change may do: beside the first call of each model, not too many meet a cold one."""
        cold = row.figures.requests - row.figures.warm - len(self._models)
        return cold <= _HOPE * (1 - self._target) * row.figures.requests

    def _divided(self, shape: Shape, ways: Sequence[Way]) -> Iterator[Answer]:
        """Yield what comes of ways to have a shape's pools share the models; of one pool, of pinning some."""
        every = frozenset(self._models)
        if len(shape) == 1:
            [(one, count)] = shape
            for order in dict.fromkeys(order for order, _ in ways):
                for part in (4, 2):
                    pinned = self._first(order, self._room[one] // part)
                    yield Answer(self._gpu, (PlannedPool(one, count, every, pinned),))
            return
        rooms = [self._room[one] * count for one, count in shape]
        least = self._room[shape[1][0]]
        large = frozenset(name for name, model in self._models.items() if model.footprint_bytes > least)
        for order, part in ways:
            first = large | self._part(order, part, rooms)
            if first and first != every:
                yield self._of_two(shape, first)

    def _part(self, order: Order, part: int, rooms: Sequence[int]) -> frozenset[str]:
        """Return the models of the first of two pools with so much room."""
        if part == 0:  # as much as its part of the room
            return self._first(order, self._bytes(frozenset(self._models)) * rooms[0] // sum(rooms))
        if part == 1:  # those that come first have all room on it
            return self._first(order, rooms[0])
        if part == 2:  # … on the other one
            return frozenset(self._models) - self._first(order, rooms[1])
        return frozenset(order[:1])  # one has it for itself

    def _kept(self, shape: Shape, ways: list[Way]) -> list[Way]:
        """Return the ways that served best for a shape: for others, these will do."""
        if len(shape) == 1 or len(ways) <= _KEPT:
            return ways
        rows = {way: [self.rows[answer] for answer in self._divided(shape, [way])] for way in ways}
        return sorted(ways, key=lambda way: -max(map(_warm, rows[way]), default=0.0))[:_KEPT]

    def _of_two(self, shape: Shape, first: frozenset[str]) -> Answer:
        """Return two pools, of which the first has these models; where all have room on one slice, all are pinned."""
        parts = first, frozenset(self._models) - first
        pools = (
            PlannedPool(one, count, part, part if count == 1 and self._bytes(part) <= self._room[one] else frozenset())
            for (one, count), part in zip(shape, parts, strict=True)
        )
        return Answer(self._gpu, tuple(pools))

    def _bytes(self, models: frozenset[str]) -> int:
        return sum(self._models[name].footprint_bytes for name in models)

    def _orders(self, plain: Sequence[Row]) -> list[Order]:
        """Return the models in the orders in which pools get them: by what callers lose, by calls, by size."""
        short = [row for row in plain if not row.meets(self._target)]
        lost = max(short, key=_warm).figures.lost if short else {}
        calls = {name: self._run.requests([name]) for name in self._models}

        def ordered(worth: Callable[[TracedModel], float]) -> Order:
            models = sorted(self._models.values(), key=lambda model: (-worth(model), model.name))
            return tuple(model.name for model in models)

        return [
            ordered(lambda model: lost.get(model.name, 0.0) / model.footprint_bytes),
            ordered(lambda model: calls[model.name] / model.footprint_bytes),
            ordered(lambda model: model.footprint_bytes),
        ]

    def _first(self, order: Order, room: int) -> frozenset[str]:
        """Return the models that fit, the first ones first; those too large for what is left are passed over."""
        taken: set[str] = set()
        for name in order:
            if self._models[name].footprint_bytes <= room:
                taken.add(name)
                room -= self._models[name].footprint_bytes
        return frozenset(taken)

    def _changed(self, row: Row, until: int, what: str) -> list[Row]:
        """Return what comes of changing one model at a time, until no more are answered at once, or enough."""
        found: list[Row] = []
        while row.answer and self._is_hopeful(row) and not row.meets(self._target) and self._run.simulated < until:
            tried = self.rows_of([*dict.fromkeys(self._neighbours(row.answer, row.figures.lost))], what)
            found += tried
            following = max(tried, key=_warm, default=row)
            if _warm(following) <= _warm(row):
                break
            row = following
        return found

    def _neighbours(self, answer: Answer, lost: Mapping[str, float]) -> Iterator[Answer]:
        """Yield the answer with one model moved to the other pool, or pinned, of those whose callers lose most."""
        for name in sorted(lost, key=lambda name: (-lost[name], name))[:_CHANGED]:
            for place, pool in enumerate(answer.pools):
                pinned = pool.pinned | {name}
                if name in pool.models - pool.pinned and self._bytes(pinned) <= self._room[pool.on] // 2:
                    others = list(answer.pools)
                    others[place] = replace(pool, pinned=pinned)
                    yield replace(answer, pools=tuple(others))
            if len(answer.pools) == 2:
                first = answer.pools[0].models ^ {name}
                if first and first != frozenset(self._models):
                    yield self._of_two(tuple((pool.on, pool.replicas) for pool in answer.pools), first)


def _share_of(shape: Shape) -> Fraction:
    return sum((one.share * count for one, count in shape), Fraction())


def _warm(row: Row) -> float:
    return row.figures.share_warm
