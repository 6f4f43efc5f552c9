"""What a sweep found: measurements, and which of them is best."""

from collections.abc import Iterable
from typing import Literal

from tidegate_contracts.message import Message

Percentile = Literal[50, 90, 95, 99]
ALIKE = 0.05
"""Throughputs within this share of each other are taken for the same: runs of one setting differ by as much."""


class Setting(Message):
    """What was set: the model's configuration, and how it was called."""

    instances: int | None = None
    """`count` of its instance groups; None: as they are."""
    max_batch: int | None = None
    """`max_batch_size`, with the dynamic batcher on; None: as they are."""
    batch: int
    """Rows in each request."""
    concurrency: int
    """Requests that are under way at the same time."""

    def __str__(self) -> str:
        """The setting in words."""
        parts = [f"instances {self.instances}"] if self.instances is not None else []
        parts += [f"max_batch_size {self.max_batch}"] if self.max_batch is not None else []
        return ", ".join([*parts, f"batch {self.batch}", f"concurrency {self.concurrency}"])


class Measurement(Message):
    """What was measured at one setting. Latencies are those of whole requests, in seconds."""

    setting: Setting
    inferences_per_second: float
    """Rows answered in a second, which is `setting.batch` times the requests."""
    p50_seconds: float
    p90_seconds: float
    p95_seconds: float
    p99_seconds: float
    memory_bytes: int | None = None
    """The most that Triton and its backends' processes had in RAM meanwhile; None where it is not ours to look at."""
    gpu_memory_bytes: int | None = None
    """The most that was in use on the GPUs meanwhile, by whomever; None where Triton tells of none."""
    stable: bool = True
    """Whether three windows in a row agreed, to a tenth."""

    def latency(self, percentile: Percentile) -> float:
        """Return a percentile of the latency, in seconds."""
        return {50: self.p50_seconds, 90: self.p90_seconds, 95: self.p95_seconds, 99: self.p99_seconds}[percentile]


class Failure(Message):
    """A setting that could not be measured."""

    setting: Setting
    why: str


class Report(Message):
    """What a sweep found."""

    model: str
    latency_limit_seconds: float | None = None
    percentile: Percentile = 99
    """Of the latency that the limit is about."""
    measurements: tuple[Measurement, ...]
    failures: tuple[Failure, ...] = ()
    best: Measurement | None = None
    """The most throughput within the limit; None where nothing keeps to it."""


def is_within(found: Measurement, limit_seconds: float | None, percentile: Percentile) -> bool:
    """Tell whether a measurement keeps to the limit."""
    return limit_seconds is None or found.latency(percentile) <= limit_seconds


def best_of(
    measurements: Iterable[Measurement], limit_seconds: float | None, percentile: Percentile
) -> Measurement | None:
    """Return the most throughput within the limit, of what is stable if anything is; None where nothing keeps to it.

    Of those whose throughput is the same but for noise it is the one that asks least of the server, and then the one
    with the least latency.
    """
    fitting = [found for found in measurements if is_within(found, limit_seconds, percentile)]
    fitting = [found for found in fitting if found.stable] or fitting
    if not fitting:
        return None
    most = max(found.inferences_per_second for found in fitting)
    alike = [found for found in fitting if found.inferences_per_second >= most * (1 - ALIKE)]
    return min(alike, key=lambda found: _cost(found, percentile))


def _cost(found: Measurement, percentile: Percentile) -> tuple[float, ...]:
    setting = found.setting
    return (setting.instances or 0, setting.max_batch or 0, found.latency(percentile), setting.concurrency)
