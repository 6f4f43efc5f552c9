import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tidegate_eviction.driver import TritonDriver
from tidegate_eviction.triton.control import TritonControl, TritonTimes
from tidegate_eviction.triton.memory import MemoryReader, MemoryReading

from .stand_in import SECRET, StandIn, serving


class RecordingService:
    def __init__(self, override: Callable[..., str | None]) -> None:
        self.override = override
        self.reports: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.readings: list[MemoryReading] = []
        self.blind = False
        self.thought: frozenset[str] = frozenset()
        self.load_ended, self.unload_ended = self._recorded("load"), self._recorded("unload")
        self.server_lost, self.server_back = self._recorded("lost"), self._recorded("back")
        self.vanished = self._recorded("vanished")

    def _recorded(self, what: str) -> Callable[..., None]:
        return lambda *report: self.reports.put_nowait((what, *report))

    def memory_read(self, reading: MemoryReading, why: str = "") -> None:
        self.readings.append(reading)
        self.blind = bool(why)

    def resident(self) -> frozenset[str]:
        return self.thought

    def is_busy(self) -> bool:
        return True


@asynccontextmanager
async def following(
    stand_in: StandIn,
    recycle: Path = Path("/nowhere/recycle"),
    override: Callable[..., str | None] = lambda *_: None,
    **times: float,
) -> AsyncIterator[tuple[TritonDriver, RecordingService]]:
    control = TritonControl(stand_in.address, SECRET, times=TritonTimes(**times))
    service = RecordingService(override)
    driver = TritonDriver(control, MemoryReader(control), recycle, service)  # type: ignore[arg-type]
    follow = asyncio.create_task(driver.follow())
    try:
        yield driver, service
    finally:
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)
        await driver.close()


@asynccontextmanager
async def driving(stand_in: StandIn, **more: Any) -> AsyncIterator[tuple[TritonDriver, RecordingService]]:
    async with asyncio.timeout(20), serving(stand_in), following(stand_in, **more) as (driver, service):
        assert (await service.reports.get())[0] == "back"
        yield driver, service
