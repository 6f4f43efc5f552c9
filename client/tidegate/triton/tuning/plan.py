"""What is to be tried."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...errors import UsageError
from .results import Percentile, Setting

Protocol = Literal["grpc", "http"]
MOST = 1024
"""Rows in a batch, requests at a time, instances: more is a slip of the hand."""
MOST_SETTINGS = 500


@dataclass(frozen=True)
class Plan:
    """Every value of each list with every value of the others; raises UsageError for what makes no sense."""

    batches: tuple[int, ...] = (1,)
    """Rows in each request."""
    concurrencies: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Requests under way at the same time."""
    instances: tuple[int, ...] = ()
    """Instances of the model; as its configuration says, without any."""
    max_batches: tuple[int, ...] = ()
    """Values of max_batch_size, with the dynamic batcher on; as its configuration says, without any."""
    protocol: Protocol = "grpc"
    window_seconds: float = 2.0
    """How long one measurement lasts; three in a row that agree are one result."""
    windows: int = 10
    """Measurements before it is given up that they agree."""
    latency_limit_seconds: float | None = None
    percentile: Percentile = 99
    """Of the latency that the limit is about."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Dimensions of inputs that the configuration leaves open, without the batch's."""
    input_data: Path | None = None
    """perf_analyzer's input data: its JSON file, or a folder with a file for each input; random without it."""
    load_seconds: float = 600.0
    """How long a Triton may take until the model is ready."""

    def __post_init__(self) -> None:
        """Check what the plan says."""
        lists = {"batch": self.batches, "concurrency": self.concurrencies, "instances": self.instances,
                 "max-batch": self.max_batches}  # fmt: skip
        for name, values in lists.items():
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
            raise UsageError("there is no such file or folder", where=str(self.input_data))
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
