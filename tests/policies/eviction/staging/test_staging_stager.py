import asyncio
import errno
import random
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from tidegate_contracts.manifest import ManifestFile
from tidegate_eviction.staging import stager as module
from tidegate_eviction.staging.copying import ChangedError, StagingError

from .rig import KIB, Rig, files_below, write_ensemble, write_model

pytestmark = pytest.mark.anyio


async def test_the_copy_goes_that_was_read_longest_ago(tmp_path: Path) -> None:
    for name in "abc":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a", "b")):
        for name in "abac":
            await rig.load(name)
        rig.check()
        assert rig.staged == {"a", "c"}


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_a_server_still_finds_the_directory_of_a_removed_copy(tmp_path: Path, is_mounted: bool) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path, is_mounted)
    async with rig.running(rig.room_for("a")):
        await rig.load("a")
        await rig.load("b")
        assert rig.staged == {"b"}
        found = (rig.served / "a").resolve(strict=True)
        assert files_below(found) == (files_below(tmp_path / "source" / "a") if is_mounted else {})


async def test_a_loading_model_loses_no_file_and_another_load_reads_the_source(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a")) as stager:
        await rig.begin("a")
        assert await rig.load("b") == 0
        rig.check()
        assert (rig.is_near("a"), rig.is_near("b")) == (True, False)
        assert files_below((rig.served / "b").resolve()) == files_below(tmp_path / "source" / "b")
        assert stager.counts.passed == 1
        stager.forget_loads()
        assert await rig.load("b") > 0, "the server is lost, and its loads with it"


async def test_a_model_larger_than_the_volume_is_read_from_its_source(tmp_path: Path) -> None:
    write_model(tmp_path, "a", size=64 * KIB)
    write_model(tmp_path, "b")
    rig = Rig(tmp_path)
    async with rig.running(32 * KIB):
        await rig.load("b")
        assert await rig.load("a") == 0
        assert (rig.served / "a").resolve() == (tmp_path / "source" / "a").resolve()
        assert rig.is_near("b")


async def test_an_ensemble_brings_the_files_of_its_parts(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    write_model(tmp_path, "b")
    write_ensemble(tmp_path, "both", "a", "b")
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.load("both")
        assert all(rig.is_near(each) for each in ("a", "b", "both"))
        assert (rig.served / "both" / "1").is_dir(), "Triton takes an empty folder for a version"


@pytest.mark.parametrize("lost", ["tier", "tier/files", "tier/models", "tier/files/a", "tier/files/a/cut"])
async def test_a_copy_that_is_lost_in_whole_or_in_part_is_made_again(tmp_path: Path, lost: str) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.load("a")
        if lost.endswith("cut"):
            (rig.served / "a" / "1" / "model.bin").write_bytes(b"short")
        else:
            shutil.rmtree(tmp_path / lost)
        assert (await rig.load("a") > 0) == (lost != "tier/models")
        rig.check()
        assert rig.is_near("a")


async def test_a_successor_keeps_staged_models_and_deletes_partial_ones(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.load("a")
    (tmp_path / "tier" / "partial" / "cut").mkdir()
    async with rig.running():
        assert not list((tmp_path / "tier" / "partial").iterdir())
        assert await rig.load("a") == 0


async def test_after_another_boot_no_copy_counts(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.load("a")
    (tmp_path / "tier" / "boot").write_text("another")
    async with rig.running():
        assert not rig.staged
        assert not list(rig.served.iterdir())
        assert await rig.load("a") > 0


async def test_a_missing_model_is_not_found_by_the_server(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running():
        await rig.load("a")
        shutil.rmtree(tmp_path / "source" / "a")
        await rig.load("a")
        assert not (rig.served / "a").exists()


async def test_two_loads_of_one_part_wait_for_one_copy(tmp_path: Path) -> None:
    write_model(tmp_path, "a", size=64 * KIB)
    for name in ("x", "y"):
        write_ensemble(tmp_path, name, "a")
    rig, go = Rig(tmp_path), Event()
    async with rig.running() as stager:
        reads: list[str] = []

        def read(model: str) -> None:
            reads.append(model)
            if reads.count("a") > 2:  # The copy is made, and the source is read once more.
                go.wait(20)

        rig.before_read = read
        loads = [asyncio.create_task(rig.load(each)) for each in ("x", "y")]
        while reads.count("a") < 3:
            await asyncio.sleep(0.01)
        go.set()
        assert min(await asyncio.gather(*loads)) > 0
        rig.check()
        sizes = [sum(map(len, files_below(tmp_path / "source" / each).values())) for each in ("a", "x", "y")]
        assert stager.counts.bytes == sum(sizes)


async def test_a_model_that_changes_while_it_is_copied_is_copied_again_and_after_three_times_refused(
    tmp_path: Path,
) -> None:
    write_model(tmp_path, "a")
    rig, reads, most = Rig(tmp_path), 0, 2

    def read(model: str) -> None:
        nonlocal reads
        reads += 1
        if reads % 2 == 0 and reads <= most:  # The read after a copy.
            write_model(tmp_path, model, b"%d" % reads)

    rig.before_read = read
    async with rig.running():
        assert await rig.load("a") > 0
        rig.check()
        reads, most = 0, 100
        write_model(tmp_path, "a", b"other")
        with pytest.raises(ChangedError, match="a changed during the copy"):
            await rig.load("a")


async def test_a_file_that_differs_from_its_manifest_is_not_loaded(tmp_path: Path) -> None:
    write_model(tmp_path, "a")
    rig = Rig(tmp_path)
    async with rig.running() as stager:
        contents = stager.contents("a")
        assert contents is not None
        other = ManifestFile(path="1/model.bin", size=1, sha256="0" * 64)
        stager.contents = lambda _: replace(contents, manifest={"1/model.bin": other})
        with pytest.raises(StagingError, match=r"1/model\.bin of model a differs from the registered file"):
            await rig.load("a")
        assert not rig.staged
        assert not (rig.served / "a").exists()


async def test_loads_from_a_bucket_wait_for_space_and_hold_none_meanwhile(
    tmp_path: Path,
) -> None:
    for name in "abcd":
        write_model(tmp_path, name)
    write_ensemble(tmp_path, "ab", "a", "b")
    write_ensemble(tmp_path, "cd", "c", "d")
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("ab", "a", "b", "c") - 1) as stager, asyncio.timeout(20):
        await rig.load("a")
        await rig.load("c")
        loads = [asyncio.create_task(rig.begin(each)) for each in ("ab", "cd")]
        (first,), _ = await asyncio.wait(loads, return_when=asyncio.FIRST_COMPLETED)
        stager.done(first.result()[0])
        await asyncio.gather(*loads)
        rig.check()


async def test_parts_that_do_not_fit_together_are_refused_at_once_even_if_some_are_staged(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    write_ensemble(tmp_path, "both", "a", "b")
    rig = Rig(tmp_path, is_mounted=False)
    async with rig.running(rig.room_for("a", "both")):
        await rig.load("a")
        with pytest.raises(StagingError, match=r"cannot be staged: its files need \d+ bytes"):
            await rig.load("both")
        assert rig.staged == {"a"}


async def test_a_load_waits_for_space_only_for_a_limited_time(tmp_path: Path) -> None:
    for name in "ab":
        write_model(tmp_path, name)
    rig = Rig(tmp_path, is_mounted=False, room_seconds=0.0)
    async with rig.running(rig.room_for("a")):
        await rig.begin("a")
        with pytest.raises(StagingError, match="b cannot be staged: loads in progress use the whole"):
            await rig.load("b")
        assert rig.staged == {"a"}


async def test_copies_that_cannot_free_enough_space_stay(tmp_path: Path) -> None:
    for name, size in (("a", 8), ("b", 8), ("c", 24)):
        write_model(tmp_path, name, size=size * KIB)
    rig = Rig(tmp_path)
    async with rig.running(rig.room_for("a", "b")):
        await rig.begin("a")
        await rig.load("b")
        assert await rig.load("c") == 0
        assert rig.staged == {"a", "b"}


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_a_volume_that_is_full_costs_the_way_to_the_source_and_a_bucket_the_load(
    tmp_path: Path, is_mounted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_model(tmp_path, "a")
    rig = Rig(tmp_path, is_mounted)
    async with rig.running() as stager:
        monkeypatch.setattr(module, "copy", full)
        if is_mounted:
            assert await rig.load("a") == 0
            assert (rig.served / "a").resolve() == (tmp_path / "source" / "a").resolve()
        else:
            with pytest.raises(StagingError, match="No space left"):
                await rig.load("a")
        assert stager.used_bytes == 0


@pytest.mark.parametrize("is_mounted", [True, False])
async def test_loads_in_any_order_read_whole_files_and_no_more_is_staged_than_may_be(
    tmp_path: Path, is_mounted: bool
) -> None:
    for name in "abcde":
        write_model(tmp_path, name)
    write_ensemble(tmp_path, "ab", "a", "b")
    rig, chance = Rig(tmp_path, is_mounted), random.Random(1)
    parts = {"ab": ("ab", "a", "b")}

    async def load(model: str) -> None:
        await asyncio.sleep(chance.uniform(0, 0.5))
        number, _ = await rig.begin(model)
        for _ in range(chance.randrange(4)):
            for piece in parts.get(model, (model,)):
                found = files_below((rig.served / piece).resolve(strict=True))
                assert found == files_below(tmp_path / "source" / piece), piece
            assert rig.stager.used_bytes <= rig.stager.settings.size_bytes
            await asyncio.sleep(0.002)
        rig.stager.done(number, failed=chance.random() < 0.2)

    async with rig.running(rig.room_for("ab", "a", "b", "c")), asyncio.timeout(60):
        await asyncio.gather(*(load(chance.choice([*"abcde", "ab"])) for _ in range(150)))
        rig.check()
