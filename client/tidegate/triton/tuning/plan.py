"""What is tried of a model, what was measured of it, and which measurement is best."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tidegate_contracts.message import Message

from ...errors import UsageError

Protocol = Literal["grpc", "http"]
Percentile = Literal[50, 90, 95, 99]
MOST = 1024  # Rows in a batch, requests at a time, instances: more is a slip of the hand.
MOST_SETTINGS = 500
ALIKE = 0.05  # Throughputs within this share of each other count as the same: runs of one setting differ by as much.


class Setting(Message):
    """The model's configuration, and how it is called."""

    instances: int | None = None  # `count` of its instance groups; None: as they are.
    max_batch: int | None = None  # `max_batch_size`, with the dynamic batcher on; None: as they are.
    batch: int  # Rows in each request.
    concurrency: int

    def __str__(self) -> str:
        parts = [f"instances {self.instances}"] if self.instances is not None else []
        parts += [f"max_batch_size {self.max_batch}"] if self.max_batch is not None else []
        return ", ".join([*parts, f"batch {self.batch}", f"concurrency {self.concurrency}"])


class Measurement(Message):
    """What was measured at one setting. Latencies are those of whole requests, in seconds."""

    setting: Setting
    inferences_per_second: float  # Rows answered in a second, which is `setting.batch` times the requests.
    p50_seconds: float
    p90_seconds: float
    p95_seconds: float
    p99_seconds: float
    memory_bytes: int | None = None
    """The most that Triton and its backends' processes had in RAM meanwhile; None where it is not ours to look at."""
    gpu_memory_bytes: int | None = None
    """The most that was in use on the GPUs meanwhile, by any process; None where Triton tells of none."""
    stable: bool = True  # Whether three windows in a row agreed, to a tenth.

    def latency(self, percentile: Percentile) -> float:
        """Return a percentile of the latency, in seconds."""
        return {50: self.p50_seconds, 90: self.p90_seconds, 95: self.p95_seconds, 99: self.p99_seconds}[percentile]


class Failure(Message):
    """A setting that could not be measured."""

    setting: Setting
    why: str


class Report(Message):
    """The result of a sweep: what was measured, and what failed."""

    model: str
    latency_limit_seconds: float | None = None
    percentile: Percentile = 99
    measurements: tuple[Measurement, ...]
    failures: tuple[Failure, ...] = ()
    best: Measurement | None = None


@dataclass(frozen=True)
class SweepPlan:
    """Every value of each list with every value of the others; raises UsageError for what makes no sense."""

    batches: tuple[int, ...] = (1,)
    concurrencies: tuple[int, ...] = (1, 2, 4, 8, 16)
    instances: tuple[int, ...] = ()  # Instances of the model; as its configuration says, without any.
    max_batches: tuple[int, ...] = ()
    """Values of max_batch_size, with the dynamic batcher on; as its configuration says, without any."""
    protocol: Protocol = "grpc"
    window_seconds: float = 2.0  # How long one measurement lasts; three in a row that agree are one result.
    windows: int = 10  # Measurements before it is given up that they agree.
    latency_limit_seconds: float | None = None
    percentile: Percentile = 99
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Dimensions of inputs that the configuration leaves open, without the batch's."""
    input_data: Path | None = None
    """perf_analyzer's input data: its JSON file, or a folder with a file for each input; random without it."""
    load_seconds: float = 600.0

    def __post_init__(self) -> None:
        lists = self.batches, self.concurrencies, self.instances, self.max_batches
        for name, values in zip(("batch", "concurrency", "instances", "max-batch"), lists, strict=True):
            if wrong := [value for value in values if not 1 <= value <= MOST]:
                raise UsageError(f"--{name} {wrong[0]} is not within 1–{MOST}")
            if len(set(values)) < len(values):
                raise UsageError(f"--{name} names a number twice")
        if not self.batches or not self.concurrencies:
            raise UsageError("there is nothing to try", do="name at least one --batch and one --concurrency")
        if not 0.05 <= self.window_seconds <= 600:
            raise UsageError(f"--window {self.window_seconds:g} is not within 0.05–600 seconds")
        if self.latency_limit_seconds is not None and not 0 < self.latency_limit_seconds < float("inf"):
            raise UsageError("--latency-ms must be more than 0")
        if any(not dims or min(dims) < 1 for dims in self.shapes.values()):
            raise UsageError("--shape takes dimensions from 1 on, such as IN:3,224,224")
        if self.input_data is not None and not self.input_data.exists():
            raise UsageError("there is no such file or folder", where=self.input_data)
        if self.max_batches and max(self.max_batches) < min(self.batches):
            raise UsageError(f"no --max-batch takes requests of {min(self.batches)} rows")
        if (count := sum(1 for _ in self.settings())) > MOST_SETTINGS:
            raise UsageError(f"{count} settings would take hours, and {MOST_SETTINGS} are the most", do="name fewer")

    def variants(self) -> list[tuple[int | None, int | None]]:
        """Return the configurations to try: instances and max_batch_size, each None where it stays as it is."""
        return [(count, rows) for count in self.instances or (None,) for rows in self.max_batches or (None,)]

    def calls(self, instances: int | None, max_batch: int | None) -> list[Setting]:
        """Return what one configuration is tried with: no request has more rows than max_batch_size."""
        return [
            Setting(instances=instances, max_batch=max_batch, batch=batch, concurrency=concurrency)
            for batch in self.batches
            for concurrency in self.concurrencies
            if max_batch is None or batch <= max_batch
        ]

    def settings(self) -> Iterator[Setting]:
        """Yield all that is tried, in order."""
        for instances, max_batch in self.variants():
            yield from self.calls(instances, max_batch)


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
    most = max((found.inferences_per_second for found in fitting), default=0.0)
    alike = [found for found in fitting if found.inferences_per_second >= most * (1 - ALIKE)]

    def cost(found: Measurement) -> tuple[float, ...]:
        setting = found.setting
        return setting.instances or 0, setting.max_batch or 0, found.latency(percentile), setting.concurrency

    return min(alike, key=cost, default=None)
