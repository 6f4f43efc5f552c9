"""A policy without its process: the core, the driver and the service, with a stand-in for Triton."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_contracts import lease
from tidegate_contracts.eviction import EvictionSettings, ManagedModel, Tuning
from tidegate_eviction.driver import TritonDriver
from tidegate_eviction.process import every_second
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.serving.service import EvictionService
from tidegate_eviction.triton.control import TritonControl
from tidegate_eviction.triton.memory import MemoryReader

from .stand_in import SECRET, StandIn, serving, until

MIB = 1 << 20
TUNING = Tuning(tolerance_bytes=MIB, freeing_seconds=1, residency_factor=0, failure_backoff_seconds=0.2)


def pool(root: Path, *models: ManagedModel | str, **changes: Any) -> EvictionSettings:
    standard: dict[str, Any] = {
        "policy": "lru-idle", "repository": str(root / "models"), "capacity_bytes": 10**9, "idle_seconds": 0,
        "lease_seconds": 5, "wait_seconds": 1,
        "models": tuple(ManagedModel(name=each) if isinstance(each, str) else each for each in models),
    }  # fmt: skip
    return EvictionSettings(**(standard | changes))


def settings_for(root: Path, declared: Mapping[str, int] | None = None, **changes: Any) -> EvictionSettings:
    """Return settings for a pool with every model of a repository. `declared` footprints are not measured."""
    names = [folder.name for folder in sorted((root / "models").iterdir())]
    models = [ManagedModel(name=name, footprint_bytes=(declared or {}).get(name)) for name in names]
    standard = {"capacity_bytes": 100 * MIB, "lease_seconds": 1, "wait_seconds": 20, "tuning": TUNING}
    return pool(root, *models, **(standard | changes))


def write_models(root: Path, *names: str, config: str = "") -> None:
    for name in names:
        (root / "models" / name / "1").mkdir(parents=True)
        (root / "models" / name / "1" / "model.bin").write_bytes(b"x")
        (root / "models" / name / "config.pbtxt").write_text(config)


@dataclass
class RunningPolicy:
    service: EvictionService
    driver: TritonDriver
    triton: StandIn
    footprints: Footprints

    async def acquire(self, model: str, holder: str = "p", seconds: float | None = None) -> lease.Answer:
        ask = lease.Acquire(holder=holder, model=model, wait_seconds=seconds)
        answer = await self.service.acquire(ask, lambda: asyncio.create_task(asyncio.sleep(3600)))
        assert answer is not None
        return answer

    def release(self, model: str, holder: str = "p") -> None:
        self.service.release(
            lease.Release(
                holder=holder,
                incarnation=self.service.residency.incarnation,
                models=(model,),
                serials={model: 10**6},
            )
        )

    def state(self, model: str) -> str:
        (found,) = [each.state for each in self.service.listing().models if each.model == model]
        return found

    def counted(self, name: str, **labels: str) -> float | None:
        return self.service.counts.registry.get_sample_value(f"tidegate_eviction_{name}", labels)

    async def until(self, true: Callable[[], object]) -> None:
        await until(true)


@asynccontextmanager
async def running_policy(
    root: Path, stand_in: StandIn, port: int, times: Mapping[str, float] = {}, **changes: Any
) -> AsyncIterator[RunningPolicy]:
    (root / "state").mkdir(exist_ok=True)
    footprints = Footprints(root / "state")
    footprints.read()
    service = EvictionService(settings_for(root, **changes), footprints, "test", chance=lambda: 0.0, **times)
    await service.look()
    control = TritonControl(f"127.0.0.1:{port}", SECRET)
    driver = TritonDriver(control, MemoryReader(control), root / "recycle", service)
    service.carry_out = driver.carry_out
    tasks = [
        asyncio.create_task(work)
        for work in (driver.follow(), service.follow_repository(), every_second(footprints.keep))
    ]
    try:
        yield RunningPolicy(service, driver, stand_in, footprints)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await driver.close()


@asynccontextmanager
async def live(root: Path, stand_in: StandIn, **changes: Any) -> AsyncIterator[RunningPolicy]:
    """Run a policy with a stand-in. Every footprint is declared by default."""
    changes.setdefault("declared", stand_in.bytes)
    if not (root / "models").exists():
        write_models(root, *stand_in.bytes)
    async with asyncio.timeout(60), serving(stand_in), running_policy(root, stand_in, stand_in.port, **changes) as made:
        await made.until(lambda: made.driver.is_up)
        yield made
