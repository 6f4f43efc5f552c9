import asyncio
import re
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

import grpc
import pytest
from tidegate_contracts.triton import MEMORY_MODEL
from tidegate_eviction import driver as module
from tidegate_eviction.core.messages import Load, Recycle, ServerInventory, Unload
from tidegate_eviction.driver import found_in
from tidegate_eviction.files import write_whole
from tidegate_eviction.staging.sources import RepositoryError
from tidegate_eviction.triton.control import ModelIndex, TritonControl, VersionState
from tidegate_eviction.triton.memory import MemoryReading, MemorySource

from ..rigs.driving import driving, following
from ..rigs.stand_in import SECRET, StandIn, serving, until

pytestmark = pytest.mark.anyio

MIB = 1 << 20


async def test_a_load_that_is_never_answered_is_watched_and_not_issued_again() -> None:
    stand_in = StandIn({"a": 1}, silent={"a"}, load_seconds=0.5)
    async with driving(stand_in, silent_call_seconds=0.1) as (driver, service):
        driver.carry_out([Load(1, "a")])
        assert await service.reports.get() == ("load", 1, None, 1, (1,))
        assert stand_in.did("load") == [MEMORY_MODEL, "a"]


async def test_a_load_of_a_predecessor_is_only_watched() -> None:
    stand_in = StandIn({"a": 1, "b": 1}, load_seconds=0.3, unload_seconds=0.3)
    async with driving(stand_in) as (driver, service):
        control = TritonControl(stand_in.address, SECRET)
        await control.connect()
        predecessors = asyncio.create_task(control.load("a", None))
        await until(lambda: "a" in stand_in.states)
        driver.carry_out([Load(1, "a", watch=True)])
        assert await service.reports.get() == ("load", 1, None, None, (1,))
        await predecessors
        await control.unload("a", 5)
        driver.carry_out([Unload(2, "a", ("a",), watch=True)])
        assert await service.reports.get() == ("unload", 2, None)
        assert (stand_in.did("load"), stand_in.did("unload")) == ([MEMORY_MODEL, "a"], ["a"])
        await control.close()


async def test_a_watched_load_that_failed_or_never_existed_is_reported() -> None:
    stand_in = StandIn({"a": 1, "b": 1}, states={"a": ("UNAVAILABLE", "no memory")})
    async with driving(stand_in, unseen_load_seconds=0.2) as (driver, service):
        driver.carry_out([Load(1, "a", watch=True)])
        assert (await service.reports.get())[2] == "no memory"
        driver.carry_out([Load(2, "b", watch=True)])
        assert "its index does not show the load" in (await service.reports.get())[2]


async def test_an_unload_ends_when_the_index_shows_every_name_unloaded() -> None:
    stand_in = StandIn({"whole": 1, "part": 1}, unload_seconds=0.3)
    async with driving(stand_in) as (driver, service):
        begun = asyncio.get_running_loop().time()
        driver.carry_out([Unload(1, "whole", ("whole", "part"))])
        assert await service.reports.get() == ("unload", 1, None)
        assert asyncio.get_running_loop().time() - begun >= 0.3
        assert stand_in.did("unload") == ["whole", "part"]


async def test_a_model_without_a_directory_is_unloaded_only_once_confirmed() -> None:
    stand_in = StandIn({"a": 1}, states={"a": ("READY", "")}, folderless={"a"})
    async with driving(stand_in, ignored_unload_seconds=0.2) as (driver, service):
        driver.carry_out([Unload(1, "a", ("a",), watch=True)])
        *who, why = await service.reports.get()
        assert who == ["unload", 1]
        assert re.fullmatch("a is not unloaded after [0-9]+ s", str(why))
        driver.carry_out([Unload(2, "a", ("a",))])
        assert await service.reports.get() == ("unload", 2, None)
        assert stand_in.did("unload") == ["a"]


async def test_a_served_model_without_a_directory_is_found() -> None:
    stand_in = StandIn({"a": 1}, states={"a": ("READY", "")}, folderless={"a"})
    async with asyncio.timeout(20), serving(stand_in), following(stand_in) as (_, service):
        assert await service.reports.get() == ("back", ServerInventory(("a",), versions={"a": (1,)}))


async def test_a_model_with_a_pending_unload_at_a_start_does_not_count_as_loaded() -> None:
    class Late(StandIn):
        async def RepositoryIndex(self, request: Any, context: Any) -> Any:
            answer = await super().RepositoryIndex(request, context)
            self.states["a"] = ("UNLOADING", "")  # It shows at the next read.
            return answer

    stand_in = Late({"a": 1}, states={"a": ("READY", "")})
    async with asyncio.timeout(20), serving(stand_in), following(stand_in, settled_seconds=0.1) as (_, service):
        assert await service.reports.get() == ("back", ServerInventory(unloading=("a",)))
        assert stand_in.queries == 2


async def test_a_model_missing_from_two_queries_of_the_index_has_vanished() -> None:
    stand_in = StandIn({"a": 1, "b": 1, "c": 1}, states=dict.fromkeys("abc", ("READY", "")), folderless={"c"})
    async with driving(stand_in, index_interval_seconds=0.1) as (_, service):
        service.thought = frozenset("abc")
        stand_in.states["b"] = ("LOADING", "")
        before = stand_in.queries
        await until(lambda: stand_in.queries > before + 3)
        assert service.reports.empty()
        stand_in.states["a"] = ("UNAVAILABLE", "unloaded")
        assert await service.reports.get() == ("vanished", frozenset("a"))


async def test_a_connection_that_breaks_and_is_back_at_once_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn()
    async with asyncio.timeout(20):
        async with serving(stand_in):
            control = TritonControl(stand_in.address, SECRET)
            await control.connect()
            assert control._channel is not None
            monkeypatch.setattr(control._channel, "get_state", lambda *_: grpc.ChannelConnectivity.READY)
            lost = asyncio.create_task(control.lost())
            await asyncio.sleep(0.1)
            assert not lost.done()
        await lost
        await control.close()


async def test_an_unnoticed_restart_of_triton_is_detected_by_the_reader() -> None:
    stand_in = StandIn({"a": 1})
    async with driving(stand_in) as (_, service):
        stand_in.server = "1:2"
        assert await service.reports.get() == ("lost", "it was restarted")
        assert (await service.reports.get())[0] == "back"


async def test_a_triton_that_hangs_is_not_lost() -> None:
    stand_in = StandIn({"a": 1})
    async with driving(stand_in, unreadable_seconds=0.3, reading_seconds=0.2, call_seconds=0.2) as (driver, service):
        stand_in.hangs = True
        driver.carry_out([Load(1, "a")])
        await until(lambda: service.blind)
        assert driver.is_up
        assert service.reports.empty()
        seen = len(service.readings)
        stand_in.hangs = False
        assert await service.reports.get() == ("load", 1, None, None, (1,))
        await until(lambda: len(service.readings) > seen)


async def test_without_a_python_backend_it_goes_on_without_readings() -> None:
    async with driving(StandIn({"a": 1}, failing={MEMORY_MODEL: "there is no such backend"})) as (driver, service):
        assert set(service.readings) == {MemoryReading(MemorySource.NONE)}
        driver.carry_out([Load(1, "a", alone=True)])
        assert await service.reports.get() == ("load", 1, None, None, (1,))


@pytest.mark.parametrize(
    ("error", "why"), [(RepositoryError("it is strange"), "it is strange"), (ZeroDivisionError(), "has a defect")]
)
async def test_versions_that_cannot_be_chosen_are_a_failed_load_and_so_is_a_defect(error: Exception, why: str) -> None:
    def override(*_: object) -> str:
        raise error

    stand_in = StandIn({"a": 1})
    async with driving(stand_in, override=override) as (driver, service):
        driver.carry_out([Load(1, "a", (1,))])
        *first, problem, grown, versions = await service.reports.get()
        assert (first, why in problem, grown, versions) == (["load", 1], True, None, ())
        assert stand_in.did("load") == [MEMORY_MODEL]


async def test_a_restart_that_cannot_be_requested_now_is_requested_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads: list[int] = []

    def write(path: Path, data: bytes) -> None:
        threads.append(get_ident())
        write_whole(path, data)

    monkeypatch.setattr(module, "write_whole", write)
    full = tmp_path / "control"
    async with driving(StandIn({}), recycle=full / "recycle", restart_retry_seconds=0.1) as (driver, _):
        driver.carry_out([Recycle("5 GiB leaked")])
        await until(lambda: caplog.text.count("cannot write") > 1)
        full.mkdir()  # There is space again.
        await until((full / "recycle").exists)
    assert (full / "recycle").read_text() == "5 GiB leaked\n"
    assert len(threads) > 1
    assert get_ident() not in threads, "a disk that is slow would hold up leases"


def test_models_in_the_index_are_found_once_and_without_the_reader() -> None:
    index = ModelIndex(
        {
            "ready": (VersionState(1, "READY", ""),),
            "reloading": (VersionState(1, "READY", ""), VersionState(2, "LOADING", "")),
            "going": (VersionState(1, "UNLOADING", ""), VersionState(2, "UNAVAILABLE", "unloaded")),
            "cold": (VersionState(1, "UNAVAILABLE", "unloaded"),),
            "never": (),
            MEMORY_MODEL: (VersionState(1, "READY", ""),),
        }
    )
    served = {"gone": (1, 2), "ready": (1,), "going": (1,), MEMORY_MODEL: (1,)}
    assert found_in(index, served) == ServerInventory(
        ("gone", "ready"), ("reloading",), ("going",), {"gone": (1, 2), "ready": (1,)}
    )


def test_only_readings_of_one_kind_and_one_triton_are_compared() -> None:
    before, after = MemoryReading(MemorySource.NVML, 5, "a"), MemoryReading(MemorySource.NVML, 8, "a")
    assert (before.growth_to(after), after.growth_to(before)) == (3, 0)
    for other in (replace(before, server="b"), replace(before, source=MemorySource.PROCESS), MemoryReading()):
        assert other.growth_to(after) is None
