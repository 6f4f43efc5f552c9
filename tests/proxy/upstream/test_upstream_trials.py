"""One request finds out whether a replica is back, whatever becomes of the others."""

import asyncio
from pathlib import Path
from time import monotonic

import pytest
from tidegate_proxy.upstream.breaker import FAILURES

from ..http.house import House, house, request, until
from ..http.upstream import Asked, Upstream, answer, upstream

pytestmark = pytest.mark.anyio


async def hang(_: Upstream, __: asyncio.StreamWriter, ___: Asked) -> None:
    await asyncio.sleep(60)


def open_breaker(here: House) -> None:
    for _ in range(FAILURES):
        here.pool.replicas[0].breaker.failed(monotonic() - 60)


async def test_of_many_requests_at_once_a_replica_that_may_be_back_gets_one(tmp_path: Path) -> None:
    async def slow(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
        await asyncio.sleep(0.3)
        await answer(writer)

    async with upstream(slow) as replica, house(tmp_path, replica) as here:
        open_breaker(here)
        statuses = [each.status for each in await asyncio.gather(*(here.ask() for _ in range(30)))]
        assert sorted(statuses) == [200] + [503] * 29
        assert len(replica.asked) == 1
        assert here.pool.replicas[0].breaker.state(monotonic()) == "closed"


async def test_a_trial_whose_caller_leaves_or_waits_no_longer_is_the_next_callers(tmp_path: Path) -> None:
    async with upstream(hang) as replica, house(tmp_path, replica) as here:
        open_breaker(here)
        breaker = here.pool.replicas[0].breaker
        async with here.caller() as caller:
            await caller.send(request())
            await until(lambda: replica.asked)
            assert not breaker.allows(monotonic())
        await until(lambda: breaker.allows(monotonic()))
        assert (await here.ask(request(Request_Timeout="0.2"))).status == 504
        assert breaker.allows(monotonic())
        replica.act = None
        assert (await here.ask()).status == 200
        assert breaker.state(monotonic()) == "closed"


async def test_a_replica_that_hangs_is_left_alone_after_a_while_unless_callers_just_wait_no_longer(
    tmp_path: Path,
) -> None:
    async with upstream(hang) as replica, house(tmp_path, replica, request_timeout_seconds=1) as here:
        breaker = here.pool.replicas[0].breaker
        hurried = await asyncio.gather(*(here.ask(request(Request_Timeout="0.2")) for _ in range(2 * FAILURES)))
        assert {each.status for each in hurried} == {504}
        assert breaker.state(monotonic()) == "closed"
        patient = await asyncio.gather(*(here.ask() for _ in range(FAILURES)))
        assert {each.status for each in patient} == {504}
        assert breaker.state(monotonic()) == "open"
        assert (await here.ask()).status == 503
        assert here.pool.replicas[0].in_flight == 0
