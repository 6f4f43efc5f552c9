"""Traces of requests to models, and the outcomes of simulations."""

import gzip
import io
import math
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Each = TypeVar("Each")


class SimulationError(Exception):
    """Wrong input. The message states what, where, why and what to do."""


MEGABYTE = 10**6
LONGEST_SECONDS = 366 * 86_400.0  # The limit of a trace, because a wrong clock would add decades of idle time.


@dataclass(frozen=True, slots=True)
class TracedModel:
    """A model in a trace. Sizes are bytes, times are seconds."""

    name: str
    footprint_bytes: int
    load_seconds: float  # The seconds that a cold request takes longer than a warm one.
    warm_seconds: float


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in time order, as columns, because there may be millions."""

    models: tuple[TracedModel, ...]
    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    which: "array[int]" = field(default_factory=lambda: array("l"))  # The model of each, as an index into `models`.

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def total_bytes(self) -> int:
        """The footprints of all models: a slice of this size never evicts."""
        return sum(model.footprint_bytes for model in self.models)

    def requests(self) -> Iterator[tuple[float, int]]:
        return zip(self.seconds, self.which, strict=True)


QUANTILES = 50, 95, 99


@dataclass(slots=True)
class Outcome:
    """The outcome of a simulation: counts over all requests of a trace. Times are seconds."""

    requests: int = 0
    wait_seconds: float = 0.0  # The pool's longest wait, which counts as lost for each refused caller.
    hits: int = 0
    busy: int = 0  # Requests refused because memory was not free in time, or the load was too long.
    too_large: int = 0  # Requests for models larger than the slice.
    evictions: int = 0
    policy_failures: int = 0  # Choices at which a custom policy failed.
    policy_failure: str = ""  # The first failure.
    loads: list[tuple[float, float]] = field(default_factory=list)  # The start and the seconds of each load.
    memory: list[tuple[float, int, int]] = field(default_factory=list)
    """Loads and unloads: the time, the model's index in the trace, and its bytes, negative for an unload."""
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    """The added wait of each answered request, for memory and load."""
    positions: "array[int]" = field(default_factory=lambda: array("l"))  # Of each of these requests, in the trace.

    def started(self, position: int, wait: float, hit: bool) -> None:
        """Count a request that begins."""
        self.hits += hit
        self.waits.append(wait)
        self.positions.append(position)

    def warm(self, begin: int, end: int) -> None:
        """Count the requests from one position to another: each begins without a wait."""
        self.requests += end - begin
        self.hits += end - begin
        self.waits.frombytes(bytes((end - begin) * self.waits.itemsize))
        self.positions.extend(range(begin, end))

    @property
    def load_seconds(self) -> float:
        return math.fsum(seconds for _, seconds in self.loads)

    @property
    def lost_seconds(self) -> float:
        """The seconds that callers lost: the waits of answered requests, and the longest wait for each refused one."""
        return math.fsum(self.waits) + self.wait_seconds * self.refused

    @property
    def answered(self) -> int:
        return len(self.waits)

    @property
    def refused(self) -> int:
        return self.busy + self.too_large

    def added_wait(self) -> dict[int, float]:
        """Return the added wait of answered requests at each of `QUANTILES`."""
        ordered = sorted(self.waits)
        return {each: quantile(ordered, each) for each in QUANTILES}


def quantile(ordered: Sequence[float], percent: float) -> float:
    """Return the percentile of an ordered list by nearest rank, or 0 if it is empty."""
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1] if ordered else 0.0


def shown(steps: Iterable[Each], what: str, number: int) -> Iterator[Each]:
    """Yield steps, and show the progress on a terminal."""
    console = Console(stderr=True)
    yield from track(steps, what, number, console=console, transient=True, disable=not console.is_terminal)


def read_trace(path: Path) -> Trace:
    """Read a trace. Raises SimulationError with file and line."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as opened:
            return _parsed(path, io.TextIOWrapper(io.BufferedReader(opened), encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise SimulationError(f"{path}: this is not UTF-8 text. A trace is comma-separated text.") from None
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SimulationError(f"{path}: the trace cannot be read ({why}).") from None


def write_trace(trace: Trace, path: Path, comment: str = "") -> None:
    """Write a trace, gzipped if the name ends in .gz. The same trace gives the same bytes."""
    lines = [f"# {line}\n" for line in comment.splitlines()]
    lines.append("# m,id,footprint_mb,cold_ms,warm_ms, and then time_ms,id\n")
    for model in trace.models:
        cold = model.load_seconds + model.warm_seconds
        size = model.footprint_bytes / MEGABYTE
        lines.append(f"m,{model.name},{_number(size)},{_number(cold * 1e3)},{_number(model.warm_seconds * 1e3)}\n")
    lines.extend(f"{_number(seconds * 1e3)},{trace.models[which].name}\n" for seconds, which in trace.requests())
    data = "".join(lines).encode()
    try:
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise SimulationError(f"{path}: the trace cannot be written ({error.strerror}).") from None


def _parsed(path: Path, lines: io.TextIOWrapper) -> Trace:
    models: list[TracedModel] = []
    places: dict[str, int] = {}
    seconds, which = array("d"), array("l")
    for number, line in enumerate(map(str.strip, lines), 1):
        try:
            if line.startswith("m,"):
                model = _model(line)
                if model.name in places:
                    raise ValueError(f"the model {model.name!r} is described twice. Remove one of the lines.")
                places[model.name] = len(models)
                models.append(model)
            elif line and not line.startswith("#"):
                at, name = _request(line)
                if name not in places:
                    raise ValueError(f"no line above describes the model {name!r}. Add `m,{name},…`.")
                if seconds and at < seconds[-1]:
                    why = f"time_ms goes back, from {_number(seconds[-1] * 1e3)} to {_number(at * 1e3)}."
                    raise ValueError(f"{why} Sort the requests by time.")
                if seconds and at - seconds[0] > LONGEST_SECONDS:
                    why = f"time_ms is {(at - seconds[0]) / 86400:,.0f} days after the first request."
                    raise ValueError(f"{why} The limit is one year. Remove the other requests.")
                seconds.append(at)
                which.append(places[name])
        except ValueError as error:
            raise SimulationError(f"{path}:{number}: {error}") from None
    if not seconds:
        raise SimulationError(f"{path}: the trace has no requests. Add lines `time_ms,id`.")
    # A recorder's clock may count from 1970, or from hours before its data.
    return Trace(tuple(models), array("d", (at - seconds[0] for at in seconds)), which)


def _request(line: str) -> tuple[float, str]:
    time, comma, name = line.partition(",")
    if not comma or "," in name:
        raise ValueError(f"{line[:60]!r} is neither `time_ms,id` nor `m,id,footprint_mb,cold_ms,warm_ms`.")
    return _quantity("time_ms", time) / 1e3, name.strip()


def _model(line: str) -> TracedModel:
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 5 or not parts[1]:
        raise ValueError(f"{line[:60]!r} is not `m,id,footprint_mb,cold_ms,warm_ms`.")
    size = round(_quantity("footprint_mb", parts[2]) * MEGABYTE)
    if not size:
        raise ValueError(f"footprint_mb is {parts[2]}, but must be above 0.")
    cold, warm = (_quantity(*each, most=1e9) for each in (("cold_ms", parts[3]), ("warm_ms", parts[4])))
    if cold < warm:
        why = f"cold_ms ({parts[3]}) is less than warm_ms ({parts[4]})"
        raise ValueError(f"{why}, but must include it: a cold request loads the model and then runs like a warm one.")
    return TracedModel(parts[1], size, (cold - warm) / 1e3, warm / 1e3)


def _quantity(what: str, text: str, most: float = 1e15) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value < most):
        raise ValueError(f"{what} is {text.strip()[:40]!r}, but must be a number from 0 to less than {most:.0e}.")
    return value


def _number(value: float) -> str:
    return f"{round(value, 3):.3f}".rstrip("0").rstrip(".")
