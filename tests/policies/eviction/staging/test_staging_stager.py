"""What is staged when, what goes for it, and that nothing but time is lost by it."""

import asyncio
import errno
import shutil
import time
from pathlib import Path
from threading import Event

import pytest
from tidegate_eviction.core.messages import WarmWindow
from tidegate_eviction.core.outlook import Outlook
from tidegate_eviction.policies import Candidate
from tidegate_eviction.staging import stager as module
from tidegate_eviction.staging.copying import StagingError
from tidegate_eviction.staging.stager import AHEAD_SECONDS

from ..core.books import specs
from ..core.worlds import started
from .rig import KIB, Rig, files_below, write_ensemble, write_model

pytestmark = pytest.mark.anyio


def used(name: str, at: float, gap: float = 0.0) -> dict[str, Candidate]:
    return {name: Candidate(name, 0, last_use=at, resident_since=0, load_seconds=1, gap_seconds=gap)}


async def test_what_a_load_reads_is_copied_once_and_found_by_the_next(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        assert await stager.ensure("a") > 0
        rig.check()
        assert rig.is_near("a")
        assert files_below(rig.served / "a") == files_below(tmp_path / "source" / "a")
        assert await stager.ensure("a") == 0
        assert (stager.counts.copied, stager.counts.found) == (1, 1)


async def test_a_new_content_replaces_what_was_staged(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        write_model(tmp_path, "a", b"new")
        await stager.ensure("a")
        rig.check()
        assert len(stager.tier.staged) == 1
        assert (rig.served / "a" / "1" / "model.bin").read_bytes().startswith(b"newnew")


async def test_what_the_server_may_still_read_stays_while_a_new_content_is_staged(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        before = (rig.served / "a").resolve()
        rig.outlook = Outlook(held=frozenset("a"), resident=frozenset("a"), sure=())
        write_model(tmp_path, "a", b"new")
        rig.outlook = Outlook(held=frozenset("a"), resident=frozenset("a"), sure=("a",))
        await until(lambda: len(stager.tier.staged) == 2)
        assert (rig.served / "a").resolve() == before
        assert (before / "1" / "model.bin").read_bytes().startswith(b"aa")


async def test_the_cost_rule_says_which_files_go(tmp_path: Path) -> None:
    for name in "abc":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a", "b")) as stager:
        await stager.ensure("a")
        await stager.ensure("b")
        now = time.monotonic()
        rig.outlook = Outlook(uses=used("a", now, gap=1) | used("b", now, gap=1000))
        await stager.ensure("c")
        rig.check()
        assert rig.staged == {"a", "c"}


async def test_files_of_what_is_in_memory_go_last_and_the_server_still_finds_it(tmp_path: Path) -> None:
    for name in "abc":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a", "b")) as stager:
        await stager.ensure("a")
        await stager.ensure("b")
        rig.outlook = Outlook(held=frozenset("a"), resident=frozenset("a"))
        await stager.ensure("c")
        assert rig.staged == {"a", "c"}
        rig.outlook = Outlook(held=frozenset("ac"), resident=frozenset("ac"))
        await stager.ensure("b")
        rig.check()
        assert "b" in rig.staged
        assert {each.name for each in rig.served.iterdir()} >= {"a", "b", "c"}


async def test_what_is_being_loaded_loses_no_file_and_another_load_reads_the_source(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a")) as stager:
        await stager.ensure("a")
        rig.outlook = Outlook(held=frozenset("a"))
        assert await stager.ensure("b") == 0
        rig.check()
        assert (rig.is_near("a"), rig.is_near("b")) == (True, False)
        assert files_below((rig.served / "b").resolve()) == files_below(tmp_path / "source" / "b")
        assert stager.counts.passed == 1


async def test_a_model_larger_than_the_folder_is_read_where_it_lies(tmp_path: Path) -> None:
    write_model(tmp_path, "a", size=64 * KIB)
    write_model(tmp_path, "b")
    rig = Rig(tmp_path)
    async with rig.running(32 * KIB) as stager:
        await stager.ensure("b")
        assert await stager.ensure("a") == 0
        assert (rig.served / "a").resolve() == (tmp_path / "source" / "a").resolve()
        assert rig.is_near("b")


async def test_what_callers_wait_for_is_staged_before_its_load_and_what_comes_regularly_after_it(
    tmp_path: Path,
) -> None:
    for name in "abc":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        now = time.monotonic()
        rig.outlook = Outlook(uses=used("b", now, gap=5), sure=("c",), likely=("b",))
        await until(lambda: stager.counts.ahead == 2)
        assert rig.staged == {"b", "c"}
        assert not list(rig.served.iterdir()), "the server need not know before a load"


async def test_models_of_a_warm_window_are_staged_in_the_hour_before_it_opens(tmp_path: Path) -> None:
    for name in "abc":
        write_model(tmp_path, name)
    rig, world = Rig(tmp_path), started(specs({"a": 20, "b": 20, "c": 20}))
    world.windows = (
        WarmWindow("soon", ("b",), world.now + AHEAD_SECONDS - 100, world.now + 2 * AHEAD_SECONDS),
        WarmWindow("later", ("a",), world.now + AHEAD_SECONDS + 100, world.now + 2 * AHEAD_SECONDS),
    )
    world.configure()
    async with rig.running() as stager:
        stager.outlook = world.residency.outlook
        await until(lambda: rig.staged)
        await asyncio.sleep(1.2)
        assert rig.staged == {"b"}
        world.advance(200.0)
        await until(lambda: rig.staged == {"a", "b"})


async def test_what_is_likely_takes_no_room_from_what_is_worth_more(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a")) as stager:
        await stager.ensure("a")
        now = time.monotonic()
        rig.outlook = Outlook(uses=used("a", now, gap=5) | used("b", now, gap=50), likely=("b",))
        await asyncio.sleep(1.5)
        assert rig.staged == {"a"}
        rig.outlook = Outlook(uses=rig.outlook.uses, sure=("b",))
        stager._not_before.clear()
        await until(lambda: rig.staged == {"b"})


async def test_copying_ahead_keeps_to_its_bandwidth_until_a_load_waits_for_it(tmp_path: Path) -> None:
    write_model(tmp_path, "a", size=256 * KIB)
    rig = Rig(tmp_path)
    async with rig.running(bandwidth=KIB) as stager:
        rig.outlook = Outlook(sure=("a",))
        await until(lambda: stager._copies)
        await asyncio.sleep(0.3)
        assert not rig.staged
        async with asyncio.timeout(10):
            assert await stager.ensure("a") > 0
        assert rig.is_near("a")


async def test_an_ensemble_brings_the_files_of_its_parts(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_model(tmp_path, "b")
    write_ensemble(tmp_path, "both", "a", "b")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("both")
        assert all(rig.is_near(each) for each in ("a", "b", "both"))
        assert (rig.served / "both" / "1").is_dir(), "Triton takes an empty folder for a version"


@pytest.mark.parametrize("lost", ["tier", "tier/files", "tier/models", "tier/files/a"])
async def test_a_folder_that_is_lost_costs_a_copy(tmp_path: Path, lost: str) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        shutil.rmtree(tmp_path / lost)
        await stager.ensure("a")
        rig.check()
        assert rig.is_near("a")


async def test_a_staged_file_that_was_cut_short_is_copied_anew(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        (rig.served / "a" / "1" / "model.bin").write_bytes(b"short")
        assert await stager.ensure("a") > 0
        rig.check()


async def test_what_a_failed_load_has_read_is_copied_anew(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        await stager.doubt("a")
        assert await stager.ensure("a") > 0


async def test_a_successor_finds_what_is_staged_and_throws_away_what_is_not_whole(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
    (tmp_path / "tier" / "partial" / "cut").mkdir()
    async with rig.running() as stager:
        assert not list((tmp_path / "tier" / "partial").iterdir())
        assert await stager.ensure("a") == 0


async def test_after_another_boot_only_what_was_on_the_disk_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    monkeypatch.setattr(module, "SYNC_SECONDS", 0.1)
    async with rig.running() as stager:
        await stager.ensure("a")
        await stager.ensure("b")
        await until(lambda: len(list((tmp_path / "tier" / "files").rglob("*.synced"))) == 2)
    (mark,) = (tmp_path / "tier" / "files" / "b").glob("*.synced")
    mark.unlink()
    (tmp_path / "tier" / "boot").write_text("another")
    async with rig.running():
        assert rig.staged == {"a"}
        rig.check()


async def test_a_model_that_is_not_there_is_not_found_by_the_server(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        await stager.ensure("a")
        shutil.rmtree(tmp_path / "source" / "a")
        await stager.ensure("a")
        assert not (rig.served / "a").exists()


async def test_a_load_and_a_copy_ahead_of_it_are_one_copy_whoever_comes_first(tmp_path: Path) -> None:
    """The look of the copy ahead hangs until the load copies, and the load's last look until the other goes on."""
    write_model(tmp_path, "a")
    rig, looks, held = Rig(tmp_path), list[str](), {1: Event(), 3: Event()}

    def waits(model: str) -> None:
        looks.append(model)
        if len(looks) in held:
            held[len(looks)].wait(20)

    async with rig.running() as stager:
        rig.before_look = waits
        rig.outlook = Outlook(sure=("a",))
        await until(lambda: looks)
        load = asyncio.create_task(stager.ensure("a"))
        await until(lambda: stager._copies)
        held[1].set()
        await asyncio.sleep(0.3)
        held[3].set()
        assert await load > 0
        await until(lambda: not stager._copies)
        rig.check()
        assert rig.is_near("a")
        assert stager.counts.bytes == sum(map(len, files_below(tmp_path / "source" / "a").values()))


async def test_a_load_from_a_bucket_waits_for_room_until_others_have_loaded_and_holds_nothing_meanwhile(
    tmp_path: Path,
) -> None:
    for name in "abcd":
        write_model(tmp_path, name)
    write_ensemble(tmp_path, "ab", "a", "b")
    write_ensemble(tmp_path, "cd", "c", "d")
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("ab", "a", "b", "c") - 1) as stager:
        await stager.ensure("a")
        await stager.ensure("c")
        rig.outlook = Outlook(held=frozenset({"ab", "a", "b", "cd", "c", "d"}))
        stager.tier.unlink("a")
        stager.tier.unlink("c")
        async with asyncio.timeout(20):
            loads = [asyncio.create_task(stager.ensure(each)) for each in ("ab", "cd")]
            done, _ = await asyncio.wait(loads, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            rig.outlook = Outlook(held=rig.outlook.held, resident=rig.outlook.held)
            await asyncio.gather(*loads)
        rig.check()


async def test_parts_that_together_do_not_fit_are_told_at_once_whatever_is_staged_of_them(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    write_ensemble(tmp_path, "both", "a", "b")
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("a", "both")) as stager:
        await stager.ensure("a")
        async with asyncio.timeout(10):
            with pytest.raises(StagingError, match=r"cannot be staged: its files take \d+ bytes"):
                await stager.ensure("both")
        assert rig.staged == {"a"}


async def test_a_load_does_not_wait_for_room_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("a")) as stager:
        await stager.ensure("a")
        rig.outlook = Outlook(held=frozenset("ab"))
        monkeypatch.setattr(module, "ROOM_SECONDS", 0.5)
        with pytest.raises(StagingError, match="b cannot be staged: all of the staging folder is in use by loads"):
            await stager.ensure("b")
        assert not stager._claims


async def test_a_load_has_the_room_of_a_copy_ahead_that_nobody_waits_for(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name, size=256 * KIB)
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("a"), bandwidth=KIB) as stager:
        rig.outlook = Outlook(sure=("a",))
        await until(lambda: stager._copies)
        async with asyncio.timeout(20):
            assert await stager.ensure("b") > 0
        rig.check()
        assert rig.staged == {"b"}


async def test_what_cannot_make_room_enough_stays(tmp_path: Path) -> None:
    for name, size in (("a", 8), ("b", 8), ("c", 24)):
        write_model(tmp_path, name, size=size * KIB)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a", "b")) as stager:
        await stager.ensure("a")
        await stager.ensure("b")
        rig.outlook = Outlook(held=frozenset("ac"))
        assert await stager.ensure("c") == 0
        assert rig.staged == {"a", "b"}


async def test_what_is_likely_takes_the_room_of_what_is_worth_less(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a")) as stager:
        await stager.ensure("a")
        now = time.monotonic()
        rig.outlook = Outlook(uses=used("a", now, gap=500) | used("b", now, gap=50), likely=("b",))
        await until(lambda: rig.staged == {"b"})


async def test_a_defect_ahead_of_loads_is_logged_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.1)

    def has_a_defect(_model: str) -> None:
        raise ZeroDivisionError

    async with rig.running() as stager:
        rig.before_look = has_a_defect
        rig.outlook = Outlook(sure=("a",))
        await until(lambda: "stages nothing ahead for 0.1 s" in caplog.text)
        assert "ZeroDivisionError" in caplog.text
        rig.before_look = str
        await until(lambda: rig.staged == {"a"})
        assert await stager.ensure("a") == 0


async def test_what_no_longer_can_be_read_costs_a_resident_model_nothing(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a")) as stager:
        await stager.ensure("a")
        rig.outlook = Outlook(held=frozenset("ab"), resident=frozenset("a"))

        def fails(model: str) -> None:
            if model == "a":
                raise OSError(errno.EIO, "the volume fails")

        rig.before_look = fails
        assert await stager.ensure("b") > 0
        assert rig.staged == {"b"}
        assert not list((rig.served / "a").iterdir()), "a folder of that name is still found"


async def until(true: object) -> None:
    async with asyncio.timeout(20):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.02)
