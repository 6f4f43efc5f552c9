"""The search for the cheapest pool: for slices of each size, the fewest that meet the target."""

from collections.abc import Sequence
from math import ceil

from tidegate_eviction.simulate.trace import Trace

from stacks.definition.pools import OnDemand

from .answers import LOADING, Answer, Row
from .simulations import Run, simulations
from .slices import Gpu, GpuSlice

MOST_GPUS = 8  # For one answer.


class Search:
    """One search, for one target. More slices of a size never make it worse, so it halves the range of counts."""

    def __init__(self, trace: Trace, gpu: Gpu, target: float, loading: OnDemand = LOADING) -> None:
        self._trace, self._gpu, self._target, self._loading = trace, gpu, target, loading
        self._too_few = dict.fromkeys(gpu.slices, 0)
        self._enough: dict[GpuSlice, int] = {}

    def rows(self) -> list[Row]:
        """Return every simulated answer: of each size up to the fewest slices that meet the target, unless slices of
        another size meet it for less."""
        found: list[Row] = []
        with simulations(self._trace) as run:
            while counts := {one: count for one in self._gpu.slices if (count := self._next(one))}:
                found += (rows := self._simulated(run, counts))
                for (one, count), row in zip(counts.items(), rows, strict=True):
                    if row.meets(self._target):
                        self._enough[one] = count
                    else:
                        self._too_few[one] = count
        return found

    def _next(self, one: GpuSlice) -> int:
        """Return how many slices of a size to try next, or 0."""
        low, high = self._too_few[one], self._enough.get(one)
        if high is not None:
            return (low + high) // 2 if high - low > 1 else 0
        most = self._gpu.most(one) * MOST_GPUS
        best = min((each.share * count for each, count in self._enough.items()), default=None)
        if best is not None:
            most = min(most, ceil(best / one.share) - 1)
        return 0 if low >= most else min(max(1, 2 * low), most)

    def _simulated(self, run: Run, counts: dict[GpuSlice, int]) -> Sequence[Row]:
        answers = [Answer(self._gpu, one, count, self._loading) for one, count in counts.items()]
        figures = run([answer.setting for answer in answers], "slices of each size")
        return [Row(answer, each) for answer, each in zip(answers, figures, strict=True)]
