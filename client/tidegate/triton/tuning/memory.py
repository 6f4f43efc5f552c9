"""How much memory a Triton takes while it is called."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import UnreachableError
from .server import opened

_EVERY_SECONDS: Final = 0.25
_GPU: Final = re.compile(r"^nv_gpu_memory_used_bytes(?:\{[^}]*\})? ([0-9.eE+]+)$", re.MULTILINE)


@dataclass
class Peak:
    """The most that was seen, in bytes; None where nothing tells."""

    host: int | None = None
    gpu: int | None = None

    def see(self, host: int | None, gpu: int | None) -> None:
        """Count what is there now."""
        self.host = max((each for each in (self.host, host) if each is not None), default=None)
        self.gpu = max((each for each in (self.gpu, gpu) if each is not None), default=None)


@contextmanager
def watched(group: int | None, metrics: str | None) -> Iterator[Peak]:
    """Look at the memory of a process group, and of the GPUs that a Triton tells of, until the block ends."""
    peak, over = Peak(), threading.Event()

    def look() -> None:
        while True:
            peak.see(host_bytes(group) if group is not None else None, gpu_bytes(metrics) if metrics else None)
            if over.wait(_EVERY_SECONDS):
                return

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def host_bytes(group: int) -> int | None:
    """Return the RAM of a process group, pages that several of it share counted once; None where Linux does not tell.

    That is the sum of what `/proc/<pid>/smaps_rollup` calls Pss: of pages that others share too, such as the code of
    another Triton on the machine, only a part counts.
    """
    found = None
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            if int(stat.read_text("utf-8", errors="replace").rpartition(")")[2].split()[2]) != group:
                continue
            for line in stat.with_name("smaps_rollup").read_text("utf-8").splitlines():
                if line.startswith("Pss:"):
                    found = (found or 0) + int(line.split()[1]) * 1024
    return found


def gpu_bytes(metrics: str, *, needed: bool = False) -> int | None:
    """Return the memory in use on all GPUs that a Triton's metrics tell of; None where they tell of none.

    Raises UnreachableError where the metrics are needed and cannot be read.
    """
    try:
        with opened(metrics, 2) as answer:
            values = [float(value) for value in _GPU.findall(answer.read().decode(errors="replace"))]
    except (OSError, ValueError) as error:
        if not needed:
            return None
        do = "check --metrics-url, such as http://localhost:8002/metrics"
        raise UnreachableError("the metrics cannot be read", why=str(error), do=do) from None
    return round(sum(values)) if values else None
