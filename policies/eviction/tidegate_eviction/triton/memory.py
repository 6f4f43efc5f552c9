"""Readings of Triton's memory. Memory counts as free only when a reading shows it, whatever an unload returns."""

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any

from tidegate_contracts.triton import MEMORY_MODEL

from .control import LostError, RefusedError, ServerCallError, TritonControl

PROGRAM = files(__package__).joinpath("memory_model.py").read_bytes()
PROGRAM_ID = hashlib.sha256(PROGRAM).hexdigest()[:16]
CONFIG = json.dumps(
    {
        "backend": "python",
        "max_batch_size": 0,
        "output": [{"name": "READING", "data_type": "TYPE_STRING", "dims": [1]}],
        "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
        "parameters": {"program": {"string_value": PROGRAM_ID}},
    }
)
LOAD_SECONDS = 60.0
log = logging.getLogger(__name__)


class MemorySource(StrEnum):
    """The sources of readings, as in metrics."""

    NVML = "nvml"  # The driver, queried in Triton's container: GPUs and MIG slices.
    PROCESS = "process"  # Memory of tritonserver and its children, without a GPU.
    NONE = "none"  # No readings: an unload counts as freed when Triton reports it.


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading of the bytes that a Triton uses."""

    source: MemorySource = MemorySource.NONE
    used_bytes: int | None = None
    server: str = ""  # Identifies the start of Triton. Empty: unknown.

    def growth_to(self, after: "MemoryReading") -> int | None:
        """Return the growth of memory in bytes. None: the readings are not comparable."""
        if self.used_bytes is None or after.used_bytes is None:
            return None
        if (self.source, self.server) != (after.source, after.server):
            return None
        return max(0, after.used_bytes - self.used_bytes)


class MemoryReader:
    """Reads the memory of a Triton, as exactly as its container allows."""

    def __init__(self, control: TritonControl) -> None:
        self._control = control
        self._has_model = False
        self._source: str | None = None

    async def prepare(self) -> None:
        """Load the model that reads memory, if necessary. Call it after each start of Triton. Raises LostError."""
        self._has_model, self._source = False, None
        with suppress(ServerCallError, KeyError):
            self._has_model = (await self._query())["program"] == PROGRAM_ID
        if self._has_model:
            return  # An earlier start of the policy loaded it.
        try:
            await self._control.load(MEMORY_MODEL, LOAD_SECONDS, CONFIG, {"1/model.py": PROGRAM})
        except LostError:
            raise
        except ServerCallError as error:
            log.warning("cannot read memory in Triton's container: %s", error)
        else:
            self._has_model = True

    async def read(self) -> MemoryReading:
        """Return a reading. Raises ServerCallError if there should be one, but is none now."""
        reading = await self._read()
        # All readings of one start of Triton have one source: others are not comparable.
        if self._source not in (None, reading.source):
            raise RefusedError(f"memory was read from {self._source}, which returns nothing now")
        self._source = reading.source
        return reading

    async def _read(self) -> MemoryReading:
        if not self._has_model:
            return MemoryReading()
        found = await self._query()
        if found["gpu"] is not None:
            return MemoryReading(MemorySource.NVML, found["gpu"], found["server"])
        if found["process"] is None:
            return MemoryReading(server=found["server"])
        return MemoryReading(MemorySource.PROCESS, found["process"], found["server"])

    async def _query(self) -> dict[str, Any]:
        try:
            found = json.loads(await self._control.text(MEMORY_MODEL, "READING", self._control.times.reading_seconds))
        except ValueError as error:
            raise RefusedError(f"the output of {MEMORY_MODEL} is not a reading: {error}") from None
        if not isinstance(found, dict) or not found.keys() >= {"program", "server", "gpu", "process"}:
            raise RefusedError(f"the output of {MEMORY_MODEL} is not a reading: {found!r:.100}")
        return found
