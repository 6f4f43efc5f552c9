import logging
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tidegate_contracts import log_fields
from tidegate_contracts.proxy_process import METRICS_PATH, SERVER_READY_PATH
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH, Place, Whereabouts
from tidegate_proxy.settings import Tunables
from tidegate_proxy.upstream import load_watch

from ..http.running_proxy import MODEL, RIG, RunningProxy, model, request, served, until

pytestmark = pytest.mark.anyio
WHY = "Invalid argument: unable to find backend library for backend 'onnxruntime'."
READY = {"name": MODEL, "version": "1", "state": "READY"}
BROKEN = {"name": MODEL, "version": "2", "state": "UNAVAILABLE", "reason": WHY}
ASK = request(f"{WHEREABOUTS_PATH}/{MODEL}", method="GET")
OFTEN = replace(RIG, index_seconds=0.05, index_fresh_seconds=0.0, index_rests=0.0)
SOON = replace(OFTEN, unexplained_seconds=0.1)


@pytest.fixture
def tunables() -> Tunables:
    return OFTEN


def failed(here: RunningProxy) -> dict[tuple[str, str], Any]:
    [watch] = here.pool.watches.values()
    return dict(watch.failed)


async def listed(here: RunningProxy) -> Place:
    [seen] = Whereabouts.model_validate_json((await here.ask(ASK)).body).models
    [place] = seen.places
    return place


async def metrics(here: RunningProxy) -> list[str]:
    _, lines = await here.admin(METRICS_PATH)
    return [line for line in lines if "load_fail" in line and not line.startswith("#")]


async def test_a_failed_load_is_reported_with_its_reason_and_calls_continue(
    here: RunningProxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, load_watch.__name__)
    here.replica.index = [READY, BROKEN]
    await until(lambda: failed(here))
    place = await listed(here)
    assert (place.state, place.replica) == ("resident", here.pool.replicas[0].name)
    assert [(each.version, each.why) for each in place.failures] == [(2, WHY)]
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert vars(warning)["data"].keys() <= log_fields.FIELDS.keys()
    assert [vars(warning)["data"][name] for name in ("version", "why", "pool")] == ["2", WHY, "main"]
    number, since = await metrics(here)
    assert number.endswith(" 1.0")
    assert f'model="{MODEL}",pool="main"' in since
    status, [first, line] = await here.admin(f"{SERVER_READY_PATH}/vision")
    assert (status, first) == (200, "ready"), "a replica can take calls"
    assert line.startswith(f"{MODEL} version 2 cannot be loaded at {here.pool.replicas[0].name} (known since ")
    assert line.endswith(WHY)
    assert (await here.ask()).status == 200
    here.replica.index = [READY, BROKEN | {"state": "READY"}]
    await until(lambda: not failed(here))
    assert not (await listed(here)).failures


async def test_a_retried_load_keeps_the_time_of_its_first_failure(here: RunningProxy) -> None:
    here.replica.index = [BROKEN]
    await until(lambda: failed(here))
    [before] = failed(here).values()
    here.replica.index = [{"name": MODEL, "version": "2", "state": "LOADING"}]
    [watch] = here.pool.watches.values()
    for _ in range(3):
        await watch.look()
    assert list(failed(here).values()) == [before]
    place = await listed(here)
    assert (place.state, [each.retrying for each in place.failures]) == ("loading", [True])


async def test_a_failure_of_a_version_that_calls_name_lasts_though_a_newer_one_is_loaded(tmp_path: Path) -> None:
    async with served(tmp_path, models=[model(MODEL, {2: 100})], tunables=OFTEN) as here:
        here.replica.index = [BROKEN, READY | {"version": "3"}]
        await until(lambda: failed(here))


@pytest.mark.parametrize("index", [[{"name": MODEL}], [READY | {"state": "UNAVAILABLE", "reason": "unloaded"}]])
async def test_a_version_that_is_not_loaded_yet_or_no_longer_needed_has_not_failed(
    here: RunningProxy, index: object
) -> None:
    here.replica.index = index
    [watch] = here.pool.watches.values()
    for _ in range(3):
        await watch.look()
    assert watch.seen
    assert not watch.failed


@pytest.mark.parametrize("tunables", [SOON])
async def test_a_version_that_is_never_loaded_has_failed_even_without_a_reason(here: RunningProxy) -> None:
    here.replica.index = [{"name": MODEL}]
    await until(lambda: failed(here))
    [failure] = failed(here).values()
    assert failure.why == load_watch.NO_REASON


async def test_a_version_that_calls_name_has_failed_if_its_model_is_loaded_without_it(tmp_path: Path) -> None:
    async with served(tmp_path, models=[model(MODEL, {1: 50, 2: 40, 3: 10})], tunables=SOON) as here:
        [watch] = here.pool.watches.values()
        await until(lambda: watch.seen)
        assert not watch.failed, "a model without any version was not deployed"
        here.replica.index = [READY, READY | {"version": "3", "state": "LOADING"}]
        await until(lambda: failed(here))
        assert {key: each.why for key, each in failed(here).items()} == {(MODEL, "2"): load_watch.NO_REASON}
        here.replica.index = [READY | {"version": str(number)} for number in (1, 2, 3)]
        await until(lambda: not failed(here))


@pytest.mark.parametrize("index", [{}, "no", [1], [{"version": "1"}]])
async def test_an_invalid_index_changes_nothing(here: RunningProxy, index: object) -> None:
    here.replica.index = index
    [watch] = here.pool.watches.values()
    for _ in range(2):  # one query may have been in progress
        await watch.look()
    assert not watch.seen
    assert not watch.failed
    assert (await here.ask()).status == 200


@pytest.mark.parametrize("was_seen", [True, False])
async def test_a_slow_index_is_queried_less_often_and_the_last_result_is_reported(
    here: RunningProxy, was_seen: bool
) -> None:
    [watch] = here.pool.watches.values()
    here.replica.index = [READY] if was_seen else {}
    await watch.ask()  # one query may have been in progress
    await watch.ask()
    assert watch.seen == was_seen
    watch.tunables = replace(OFTEN, index_timeout_seconds=0.05, index_rests=10.0)
    here.replica.index_seconds = 60.0
    rests = list[float]()
    for _ in range(3):
        missed = watch._missed
        await until(lambda missed=missed: watch._missed > missed, 30)
        rests.append(watch._rest)
    assert all(rest > 9 * 0.05 * 2**number for number, rest in enumerate(rests))
    assert not watch.seen
    place = await listed(here)
    if was_seen:
        assert (place.state, place.versions, place.seen_seconds is not None) == ("resident", (1,), True)
    else:
        assert (place.state, place.why.endswith(": no response within 0 s")) == ("unseen", True)
    assert (await here.ask()).status == 200
    assert here.pool.replicas[0].breaker.state(monotonic()) == "closed"


@pytest.mark.parametrize("tunables", [replace(OFTEN, index_timeout_seconds=3.0)])
async def test_a_silent_replica_is_checked_as_soon_as_it_is_back(here: RunningProxy) -> None:
    [watch] = here.pool.watches.values()
    here.replica.index_seconds, here.replica.is_alive = 60.0, False
    await until(lambda: not watch.seen, 10)
    here.replica.index_seconds, here.replica.is_alive, here.replica.index = 0.0, True, [READY]
    await until(lambda: watch.loaded, 3)


@pytest.mark.parametrize("tunables", [replace(OFTEN, index_wait_seconds=0.1)])
async def test_a_request_waits_for_an_index_only_for_a_limited_time(here: RunningProxy) -> None:
    here.replica.index = [READY]
    [watch] = here.pool.watches.values()
    await until(lambda: watch.loaded)
    here.replica.index_seconds, before = 60.0, here.replica.queries
    await until(lambda: here.replica.queries > before)
    assert (await listed(here)).state == "resident"
    assert watch._probing is not None, "the query still runs"
