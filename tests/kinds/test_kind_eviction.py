"""Another kind of server beside the eviction policy: an entry in `KINDS` is all it takes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import lease
from tidegate_eviction.kinds import KINDS
from tidegate_eviction.process import EvictionPolicy, ServeOptions
from tidegate_eviction.serving.metrics import render
from tidegate_eviction.serving.settings import SettingsError, read

from lab.local_plane.credentials import write_cluster

from .toy.eviction import ToyDriver, ToyKind


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> ToyKind:
    made = ToyKind({"a": 60, "b": 60, "c": 30})
    monkeypatch.setitem(KINDS, "toy", made)
    return made


def settings(**changes: Any) -> bytes:
    said = {
        "version": 1, "kind": "toy", "policy": "lru", "repository": "toy://", "capacityBytes": 100, "idleSeconds": 0,
        "leaseSeconds": 1, "waitSeconds": 5, "models": [{"name": name} for name in "abc"],
        "tuning": {"residencyFactor": 0, "toleranceBytes": 0, "leakBudgetBytes": 10},
    }  # fmt: skip
    return json.dumps(said | changes).encode()


def play(root: Path, work: Callable[[EvictionPolicy], Awaitable[None]]) -> None:
    """Run the whole policy over settings in a folder."""
    (root / "eviction.json").write_bytes(settings())

    async def run() -> None:
        files = root / "eviction.json", root / "control", root / "state"
        options = ServeOptions(*files, "127.0.0.1", 0, 0, cluster=write_cluster(root / "cluster"))
        policy = EvictionPolicy(options)
        async with asyncio.timeout(20):
            await policy.start()
            while not policy.driver.is_up:
                await asyncio.sleep(0.01)
            await work(policy)
            await policy.stop()

    asyncio.run(run())


async def acquire(policy: EvictionPolicy, model: str) -> lease.Answer:
    ask = lease.Acquire(holder="p", model=model, wait_seconds=None)
    answer = await policy.service.acquire(ask, lambda: asyncio.create_task(asyncio.sleep(60)))
    assert answer is not None
    return answer


def test_its_models_are_loaded_measured_and_evicted_for_each_other(tmp_path: Path, kind: ToyKind) -> None:
    async def work(policy: EvictionPolicy) -> None:
        (driver,) = kind.drivers
        assert isinstance(driver, ToyDriver)
        for model in "ac":
            assert (await acquire(policy, model)).outcome == "granted"
        assert driver.loaded == {"a", "c"}
        incarnation = policy.service.residency.incarnation
        policy.service.release(lease.Release(holder="p", incarnation=incarnation, models=("a",), serials={"a": 99}))
        assert (await acquire(policy, "b")).outcome == "granted"
        assert driver.loaded == {"b", "c"}
        assert driver.highest_bytes <= 100
        (found,) = [each for each in policy.service.listing().models if each.model == "b"]
        assert (found.footprint_bytes, found.footprint_from) == (60, "measured")
        assert (await acquire(policy, "nobody")).outcome == "unknown"
        text = render(await asyncio.wrap_future(policy._snapshot())).decode()
        assert 'tidegate_eviction_memory_source{source="toy"} 1.0' in text
        assert "nvml" not in text

    play(tmp_path, work)


def test_its_end_and_its_return_are_followed(tmp_path: Path, kind: ToyKind) -> None:
    async def work(policy: EvictionPolicy) -> None:
        (driver,) = kind.drivers
        await acquire(policy, "a")
        driver.loaded.clear()
        driver.events.server_lost("a test ended it")
        assert {each.state for each in policy.service.listing().models} == {"cold"}
        await policy.driver.close()
        following = asyncio.create_task(policy.driver.follow())
        assert (await acquire(policy, "a")).outcome == "granted"
        following.cancel()

    play(tmp_path, work)


@pytest.mark.usefixtures("kind")
def test_its_own_names_are_reserved_and_a_pool_does_not_change_its_kind(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="toy_reader is how the policy calls its own model"):
        read(settings(models=[{"name": "toy_reader"}]))
    assert read(settings(models=[{"name": "tidegate_memory"}])).kind == "toy"

    async def work(policy: EvictionPolicy) -> None:
        with pytest.raises(SettingsError, match="kind: it changes only when the server is restarted"):
            policy.service.use(read(settings(kind="triton")))
        assert policy.service.settings.kind == "toy"

    play(tmp_path, work)


def test_a_kind_that_is_not_registered_is_refused() -> None:
    with pytest.raises(SettingsError, match="kind: there is no 'toy', only openai, triton"):
        read(settings())
