import asyncio
import gc
from pathlib import Path

import pytest
from tidegate_contracts import lease
from tidegate_proxy.shared_tasks import SharedTasks

from lab.local_plane.proxy import write_tables

from ..http.running_proxy import request, until
from .estate import at, estate, table
from .standin import sites

pytestmark = pytest.mark.anyio


async def test_a_cold_model_is_loaded_by_the_first_call_and_warm_calls_send_no_lease_request(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        assert at(await here.call("a")) == site.host
        before = len(site.policy.requests)
        for _ in range(50):
            assert (await here.call("a")).status == 200
        assert (site.loads["a"], len(site.acquires)) == (1, 1)
        assert len(site.policy.requests) == before
        assert not site.wrong


async def test_all_callers_of_a_cold_model_wait_for_one_load(tmp_path: Path) -> None:
    async with sites(load_seconds=0.3) as [site], estate(tmp_path, [site], concurrency=50) as here:
        replies = await asyncio.gather(*(here.call("a") for _ in range(100)))
        assert {reply.status for reply in replies} == {200}
        assert (site.loads["a"], len(site.acquires)) == (1, 1)


async def test_a_call_that_waits_for_a_load_has_no_slot(tmp_path: Path) -> None:
    async with sites(load_seconds=1.0) as [site], estate(tmp_path, [site], concurrency=10) as here:
        site.resident.add("b")
        waiting = [asyncio.ensure_future(here.call("a")) for _ in range(20)]
        await until(lambda: here.leases.waiting == 20)
        assert here.proxy.shared.limiter.in_flight == here.proxy.shared.limiter.waiting == 0
        assert at(await here.call("b", 0.8)) == site.host
        assert {(await each).status for each in waiting} == {200}
        assert here.proxy.shared.limiter.in_flight == here.leases.waiting == 0


async def test_so_many_may_wait_for_one_model_that_others_can_still_be_had(tmp_path: Path) -> None:
    async with sites(load_seconds=1.0) as [site], estate(tmp_path, [site], concurrency=2) as here:
        calls = [asyncio.ensure_future(here.call("a")) for _ in range(10)]
        await until(lambda: here.leases.waiting == 4)
        other = asyncio.ensure_future(here.call("b"))
        replies = [await each for each in calls]
        assert sorted(reply.status for reply in replies) == [200] * 4 + [503] * 6
        assert "Too many requests already wait" in next(each for each in replies if each.status == 503).json()["detail"]
        assert (await other).status == 200
        assert here.leases.waiting == 0


async def test_a_caller_that_leaves_does_not_end_the_load_of_others(tmp_path: Path) -> None:
    async with sites(load_seconds=0.4) as [site], estate(tmp_path, [site]) as here:
        async with here.caller() as first:
            await first.send(request("/v2/models/a/infer"))
            await until(lambda: site.loading)
            second = asyncio.ensure_future(here.call("a"))
            await until(lambda: len(here.proxy.shared.open_calls) == 2)
        assert (await second).status == 200
        assert (site.loads["a"], len(site.acquires), site.policy.left) == (1, 1, 0)


async def test_when_the_last_waiting_caller_has_left_the_policy_is_notified(tmp_path: Path) -> None:
    async with sites(load_seconds=0.4) as [site], estate(tmp_path, [site]) as here:
        async with here.caller() as only:
            await only.send(request("/v2/models/a/infer"))
            await until(lambda: site.loading)
        await until(lambda: site.policy.left == 1)  # the connection on which it waited
        assert not here.held()


async def test_a_load_that_takes_longer_than_the_caller_waits_is_busy(tmp_path: Path) -> None:
    async with sites(load_seconds=1.5) as [site], estate(tmp_path, [site]) as here:
        reply = await here.call("a", request_timeout="0.3")
        assert (reply.status, reply.problem) == (503, "busy")
        assert "not loaded within 0.3 s" in reply.json()["detail"]
        assert reply.headers["retry-after"] == "1"
        await until(lambda: not here.proxy.shared.open_calls)


@pytest.mark.parametrize(
    ("why", "status", "problem"),
    [
        (lease.Unknown(why="there is no folder a"), 404, "unknown"),
        (lease.TooLarge(needed_bytes=9, capacity_bytes=5, why="it needs 9 bytes of 5"), 507, "never-fits"),
        (lease.Quarantined(why="it failed 3 times: no such layer"), 424, "load-failed"),
    ],
)
async def test_permanent_failures_are_reported_at_once_with_the_reason(
    tmp_path: Path, why: lease.Unknown | lease.TooLarge | lease.Quarantined, status: int, problem: str
) -> None:
    async with sites(2, refuses={"a": why}) as here, estate(tmp_path, here) as front:
        reply = await front.call("a")
        assert (reply.status, reply.problem) == (status, problem)
        assert "retry-after" not in reply.headers
        assert reply.json()["detail"] == why.why
        assert sum(len(site.acquires) for site in here) == 1, "the other replica would respond the same"


async def test_leases_are_renewed_all_in_one_call_with_how_they_are_used(tmp_path: Path) -> None:
    async with sites(lease_seconds=0.6) as [site], estate(tmp_path, [site]) as here:
        for _ in range(3):
            await here.call("a")
        slow = asyncio.ensure_future(here.call("slow"))
        await until(lambda: "slow" in here.held().get(site.host, ()))
        count = len(site.renewals)
        await until(lambda: len(site.renewals) > count + 1)
        last = next(each for each in site.renewals[count:] if len(each.models) == 2)
        assert last.models["slow"].in_flight == 1
        assert last.models["slow"].idle_seconds == 0
        assert last.models["a"].in_flight == 0
        assert last.models["a"].idle_seconds > 0
        await slow
        assert sum(each.models["a"].requests for each in site.renewals if "a" in each.models) == 3
        assert len({each.holder for each in site.renewals}) == 1


async def test_at_the_end_leases_are_kept_until_the_work_is_done_and_then_given_back(tmp_path: Path) -> None:
    async with sites(lease_seconds=0.3) as [site]:
        async with estate(tmp_path, [site]) as here:
            await here.call("a")
            slow = asyncio.ensure_future(here.call("slow"))
            await until(lambda: "/v2/models/slow/infer" in site.calls)
            stopping = asyncio.ensure_future(here.proxy.stop())
            assert (await slow).status == 200
            assert ("slow" in site.released) is False
            await stopping
        assert sorted(set(site.released)) == ["a", "slow"]
        assert not site.leases
        assert not site.wrong


async def test_a_pool_that_the_table_changes_keeps_its_leases_until_its_requests_have_ended(tmp_path: Path) -> None:
    async with sites(lease_seconds=0.6) as [site], estate(tmp_path, [site]) as here:
        slow = asyncio.ensure_future(here.call("slow"))
        await until(lambda: "/v2/models/slow/infer" in site.calls)
        before = here.leases
        write_tables(tmp_path, table([site], grpc_port=2))
        await until(lambda: here.leases is not before)
        assert at(await here.call("slow")) == site.host
        assert (await slow).status == 200
        assert len({each.holder for each in site.acquires}) == 2
        assert "slow" in site.resident
        assert not site.wrong


@pytest.mark.filterwarnings("error")
async def test_work_that_is_cancelled_before_it_begins_never_runs_and_logs_nothing() -> None:
    begun = []

    async def work() -> None:
        begun.append(True)

    shared: SharedTasks[str, None] = SharedTasks()
    caller = asyncio.ensure_future(shared.join("a", work))
    asyncio.get_running_loop().call_soon(shared.fail, OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await caller
    del caller
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert not begun
    assert not shared.under_way
