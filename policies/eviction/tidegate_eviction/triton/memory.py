"""Readings of the memory that a Triton uses: room counts as free only when it came back, whatever an unload says."""

import asyncio
import hashlib
import http.client
import json
import logging
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
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
READ_SECONDS = 5.0
METRICS_TRIES = 5  # After so many first readings without an answer of Triton's metrics, readings go on without them.
USED, TOTAL = "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"
# Triton is in the same pod, whatever the environment says.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
log = logging.getLogger(__name__)


class MemorySource(StrEnum):
    """Where readings come from, as metrics call it."""

    NVML = "nvml"  # The driver, asked in Triton's container: GPUs and MIG slices.
    METRICS = "triton-metrics"
    """Triton's own metrics, as old as its `--metrics-interval-ms`; inside a MIG slice there are none."""
    PROCESS = "process"  # Memory of tritonserver and its children, where there is no GPU.
    NONE = "none"  # There are no readings, and an unload counts as soon as Triton says so.


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One reading of the bytes that a Triton uses."""

    source: MemorySource = MemorySource.NONE
    used_bytes: int | None = None
    total_bytes: int | None = None
    server: str = ""  # Which start of Triton it is of; empty where that is not known.

    def growth_to(self, after: "MemoryReading") -> int | None:
        """Return by how many bytes memory grew; None where the two readings cannot be compared."""
        if self.used_bytes is None or after.used_bytes is None:
            return None
        if (self.source, self.server) != (after.source, after.server):
            return None
        return max(0, after.used_bytes - self.used_bytes)


class MemoryReader:
    """Reads how much memory a Triton uses, as exactly as its container allows."""

    def __init__(
        self, control: TritonControl, metrics_url: str | None, fetch: Callable[[str], str] | None = None
    ) -> None:
        self._control = control
        self._metrics_url = metrics_url
        self._fetch = fetch or _fetch
        self._has_model = False
        self._has_metrics = True
        self._is_blind = False
        self._tries = 0
        self._source: str | None = None
        self.last = MemoryReading()

    async def prepare(self) -> None:
        """Load the model that reads memory, if need be; to be called after each start of Triton, raises LostError."""
        self._has_model, self._has_metrics, self._source = False, self._metrics_url is not None, None
        self._is_blind = False
        with suppress(ServerCallError, KeyError):
            self._has_model = (await self._ask())["program"] == PROGRAM_ID
        if self._has_model:
            return  # an earlier start of the policy loaded it
        try:
            await self._control.load(MEMORY_MODEL, LOAD_SECONDS, CONFIG, {"1/model.py": PROGRAM})
        except LostError:
            raise
        except ServerCallError as error:
            log.warning("memory cannot be read in Triton's container, only from its metrics: %s", error)
        else:
            self._has_model = True

    async def read(self) -> MemoryReading:
        """Return a reading; raises ServerCallError when there should be one and is none now."""
        reading = await self._read()
        # All readings of one start of Triton are from one source: numbers of two cannot be compared.
        if self._source not in (None, reading.source):
            raise RefusedError(f"memory was read from {self._source}, which tells nothing now")
        self._source, self.last, self._tries = reading.source, reading, 0
        return reading

    async def _read(self) -> MemoryReading:
        said = await self._ask() if self._has_model else None
        server = "" if said is None else said["server"]
        if said is not None and (gpu := said["gpu"]) is not None:
            return MemoryReading(MemorySource.NVML, gpu["used"], gpu["total"], server)
        try:
            told = await asyncio.to_thread(self._from_metrics) if self._has_metrics else None
        except LostError as error:
            if self._source is not None:
                raise
            self._tries += 1
            if self._tries < METRICS_TRIES:
                raise
            log.error("%s: it goes on without readings of memory until Triton is started anew", error)
            told, self._has_metrics, self._is_blind = None, False, True
        if self._is_blind:  # there may be a GPU: what processes take would be another number
            return MemoryReading(server=server)
        if self._source is None and told is None and said is not None:
            self._has_metrics = False  # there is no GPU: it is not asked again and again
        if told is not None:
            return MemoryReading(MemorySource.METRICS, told[0], told[1], server)
        return MemoryReading() if said is None else MemoryReading(MemorySource.PROCESS, said["process"], None, server)

    async def _ask(self) -> dict[str, Any]:
        try:
            said = json.loads(await self._control.text(MEMORY_MODEL, "READING", READ_SECONDS))
        except ValueError as error:
            raise RefusedError(f"what {MEMORY_MODEL} answers is no reading: {error}") from None
        if not isinstance(said, dict) or not said.keys() >= {"program", "server", "gpu", "process"}:
            raise RefusedError(f"what {MEMORY_MODEL} answers is no reading: {said!r:.100}")
        return said

    def _from_metrics(self) -> tuple[int, int] | None:
        assert self._metrics_url is not None
        try:
            return gpu_memory(self._fetch(self._metrics_url))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LostError(f"Triton's metrics at {self._metrics_url} cannot be read: {error!r}") from None


def gpu_memory(metrics: str) -> tuple[int, int] | None:
    """Return the used and the total bytes of all GPUs in Triton's metrics; None where they tell of no GPU."""
    families = {family.name: family.samples for family in text_string_to_metric_families(metrics)}
    used, total = (families.get(name, []) for name in (USED, TOTAL))
    return (int(sum(each.value for each in used)), int(sum(each.value for each in total))) if used or total else None


def _fetch(url: str) -> str:
    with _OPENER.open(url, timeout=READ_SECONDS) as answer:
        text: str = answer.read().decode()
        return text
