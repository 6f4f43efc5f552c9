import asyncio
import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from tidegate_contracts import lease
from tidegate_eviction.core.messages import ServerInventory, Step

from ..rigs.running_policy import MIB, TUNING, live, running_policy, settings_for, write_models
from ..rigs.stand_in import StandIn, serving

pytestmark = pytest.mark.anyio


async def test_footprints_are_measured_and_known_to_a_successor(tmp_path: Path) -> None:
    stand_in = StandIn({"a": 70 * MIB, "b": 20 * MIB})
    file = tmp_path / "state" / "footprints.json"
    for start in ("first", "second"):
        async with live(tmp_path, stand_in, declared={}) as policy:
            if start == "first":
                await policy.acquire("a")
            (found,) = [each for each in policy.service.listing().models if each.model == "a"]
            assert (found.footprint_bytes, found.footprint_from) == (70 * MIB, "measured")
            await policy.until(lambda: file.exists() and '"a"' in file.read_text())
        stand_in.states.clear()


async def test_triton_killed_with_callers_waiting_loads_again_within_their_wait(tmp_path: Path) -> None:
    stand_in = StandIn({"a": MIB, "b": MIB}, load_seconds=0.6)
    write_models(tmp_path, "a", "b")
    async with asyncio.timeout(30):
        async with serving(stand_in):
            port = stand_in.port
            open_it = running_policy(tmp_path, stand_in, port)
            policy = await open_it.__aenter__()
            assert (await policy.acquire("b")).outcome == "granted"
            before = policy.service.residency.incarnation
            waiting = asyncio.create_task(policy.acquire("a"))
            await policy.until(lambda: policy.state("a") == "loading")
        await policy.until(lambda: not policy.driver.is_up)
        assert policy.state("b") == "cold"
        stand_in.states, stand_in.has_reader = {}, False
        async with serving(stand_in, port):
            assert (await waiting).outcome == "granted"
            assert policy.service.residency.incarnation != before
            renewed = policy.service.renew(
                lease.Renew(holder="p", incarnation=before, models={"b": lease.Use(in_flight=0, idle_seconds=0)})
            )
            assert renewed.lost == ("b",)
            await open_it.__aexit__(None, None, None)


async def test_a_model_that_was_just_published_is_found_at_a_request(tmp_path: Path) -> None:
    write_models(tmp_path, "a")
    (model,) = settings_for(tmp_path).models
    models = (model, model.model_copy(update={"name": "new"}))
    async with live(tmp_path, StandIn({"a": MIB, "new": MIB}), models=models) as policy:
        assert (await policy.acquire("new")).outcome == "unknown"
        write_models(tmp_path, "new")
        assert (await policy.acquire("new")).outcome == "granted"


async def test_a_model_that_left_the_settings_leaves_its_name_in_metrics_to_another(tmp_path: Path) -> None:
    async with live(tmp_path, StandIn(dict.fromkeys("abcd", MIB))) as policy:
        policy.service.counts.most = 2
        for name in "abc":
            await policy.acquire(name)
            policy.release(name)
        assert [policy.counted("model_loads_total", model=each) for each in ("a", "b", "c", "*")] == [1, 1, None, 1]
        settings = policy.service.settings
        policy.service.use(settings.model_copy(update={"models": settings.models[1:]}))
        await policy.until(lambda: not any(each.model == "a" for each in policy.service.listing().models))
        await policy.service.look()  # As it does every ten seconds.
        await policy.acquire("d")
        counted = [policy.counted("model_loads_total", model=each) for each in ("a", "b", "c", "d", "*")]
        assert counted == [None, 1, None, 1, 1]
        assert b'model="a"' not in generate_latest(policy.service.counts.registry)


async def test_a_load_reads_the_present_files_and_is_not_outdated_by_them(tmp_path: Path) -> None:
    async with live(tmp_path, StandIn({"a": MIB}), lease_seconds=60) as policy:
        (tmp_path / "models" / "a" / "1" / "model.bin").write_bytes(b"another")
        assert (await policy.acquire("a")).outcome == "granted"
        await policy.service.look()
        assert policy.state("a") == "resident"
        (tmp_path / "models" / "a" / "1" / "model.bin").write_bytes(b"and another")
        await policy.service.look()
        assert policy.state("a") == "draining"
        policy.release("a")
        await policy.until(lambda: policy.state("a") == "cold")
        assert policy.counted("evictions_total", reason="changed") == 1


async def test_an_answer_that_is_due_is_not_lost_when_another_call_comes_first(tmp_path: Path) -> None:
    async with live(tmp_path, StandIn({"a": MIB, "b": MIB}, load_seconds=1)) as policy:
        await policy.acquire("a")
        waiting = asyncio.create_task(policy.acquire("b", seconds=0.5))
        await policy.until(lambda: policy.state("b") == "loading")
        time.sleep(0.5)  # Nothing else runs: the wait ends, and the next event is another call.
        assert (await policy.acquire("a")).outcome == "granted"
        async with asyncio.timeout(5):
            assert (await waiting).outcome == "busy"


async def test_a_defect_of_one_moment_does_not_stop_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[float] = []
    async with live(tmp_path, StandIn({"a": MIB}), times={"after_defect_seconds": 0.1}) as policy:
        real = policy.service.residency.tick

        def tick(now: float) -> Step:
            seen.append(now)
            if len(seen) == 1:
                raise ZeroDivisionError
            return real(now)

        monkeypatch.setattr(policy.service.residency, "tick", tick)
        await policy.acquire("a")
        await policy.until(lambda: len(seen) > 1)
        assert "the policy has a defect" in caplog.text


async def test_each_load_and_each_eviction_is_one_line_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate_eviction.events")
    async with live(tmp_path, StandIn({"a": 60 * MIB, "b": 60 * MIB})) as policy:
        await policy.acquire("a")
        policy.release("a")
        await policy.acquire("b")
    events = [record.data for record in caplog.records if hasattr(record, "data") and record.name.endswith("events")]
    assert [(each["event"], each["model"]) for each in events] == [("loaded", "a"), ("evicted", "a"), ("loaded", "b")]
    assert (events[1]["reason"], events[1]["wantedBy"]) == ("room", "b")
    assert events[0]["seconds"] > 0


async def test_retry_after_is_never_earlier_than_the_exact_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn({"a": 60 * MIB, "b": 60 * MIB})
    async with live(tmp_path, stand_in, lease_seconds=10) as policy:
        await policy.acquire("a")
        now = time.monotonic()
        monkeypatch.setattr("tidegate_eviction.serving.service.monotonic", lambda: now)  # All call at the same time.
        waits = []
        for chance in (0.0, 0.5, 1.0):
            policy.service._chance = lambda value=chance: value  # type: ignore[misc]
            answer = await policy.acquire("b", seconds=0)
            assert isinstance(answer, lease.Busy)
            waits.append(answer.retry_after)
        exact, middle, late = waits
        assert exact < middle < late <= exact * 1.2 + 0.1


async def test_a_connection_that_breaks_after_leases_were_made_shorter_ends_none_that_was_granted(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, StandIn({"a": 60 * MIB, "b": 60 * MIB}), lease_seconds=20) as policy:
        assert (await policy.acquire("a")).outcome == "granted"
        shorter = settings_for(tmp_path, lease_seconds=1, declared=policy.triton.bytes)
        policy.service.use(shorter)
        await policy.until(lambda: policy.service.residency.renew("q", "", {}, 0)[1].lease_seconds == 1)
        policy.service.server_lost("a test")
        policy.service.server_back(ServerInventory(resident=("a",)))
        (found,) = [each for each in policy.service.listing().models if each.model == "a"]
        busy = await policy.acquire("b", seconds=0)
        assert isinstance(busy, lease.Busy)
        assert busy.retry_after > 15, found


async def test_a_repository_that_hangs_delays_no_caller_beyond_its_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hangs(*_: object) -> bool:
        return not answers.wait(60)

    async with live(tmp_path, StandIn({"a": MIB}), times={"most_look_seconds": 0.2}) as policy:
        monkeypatch.setattr(policy.service._catalog, "has_changed", hangs)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            assert (await policy.acquire("a", seconds=20)).outcome == "granted"
            assert loop.time() - begun < 20
        finally:
            answers.set()


async def test_a_broken_connection_frees_no_leaked_memory(tmp_path: Path) -> None:
    async with live(
        tmp_path,
        StandIn(dict.fromkeys("ab", 60 * MIB), leaks={"a"}),
        tuning=TUNING.model_copy(update={"leak_budget_bytes": 80 * MIB}),
    ) as policy:
        await policy.acquire("a")
        policy.release("a")
        assert (await policy.acquire("b")).outcome != "granted"
        leaked = policy.service.listing().leaked_bytes
        assert leaked == pytest.approx(60 * MIB, abs=MIB)
        for same in (True, False):
            policy.service.server_lost("a test")
            if not same:
                policy.service.reading = replace(policy.service.reading, server="2:2")
            policy.service.server_back(ServerInventory())
            assert policy.service.listing().leaked_bytes == (leaked if same else 0)
