import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tidegate_contracts.placement import ranked

from ..http.running_proxy import request, until
from .estate import OFTEN, Estate, at, estate, estates
from .standin import Site, sites

pytestmark = pytest.mark.anyio
SOON = replace(OFTEN, heat_seconds=0.2, calm_seconds=0.3)


def in_rank(model: str, here: list[Site]) -> list[Site]:
    by_name = {f"{site.host}:{site.triton.port}": site for site in here}
    return [by_name[name] for name in ranked(model, by_name)]


async def test_a_model_that_is_warm_elsewhere_is_called_there(tmp_path: Path) -> None:
    async with sites(3) as here:
        last = in_rank("a", here)[-1]
        last.resident.add("a")
        async with estate(tmp_path, here) as front:
            assert at(await front.call("a")) == last.host, "though the proxy has just begun"
        assert not any(site.loads["a"] for site in here)


async def test_a_busy_replica_is_passed_over_for_the_next_in_rank(tmp_path: Path) -> None:
    async with sites(3) as here, estate(tmp_path, here) as front:
        first, second, third = in_rank("a", here)
        first.room = 0
        assert at(await front.call("a")) == second.host
        assert not third.acquires


async def test_when_all_are_busy_the_response_has_the_shortest_wait(tmp_path: Path) -> None:
    async with sites(3, room=0) as here, estate(tmp_path, here) as front:
        for site, seconds in zip(here, (9.0, 2.25, 5.0), strict=True):
            site.retry_after = seconds
        reply = await front.call("a")
        assert (reply.status, reply.problem) == (503, "busy")
        assert (reply.headers["retry-after"], reply.json()["retryAfterSeconds"]) == ("3", 2.25)
        assert "everything is in use" in reply.json()["detail"]


@asynccontextmanager
async def load(front: Estate, model: str, callers: int = 1, pause: float = 0.02) -> AsyncIterator[Counter[str]]:
    """Call a model over so many connections until the block ends. Yields the targets of the calls."""
    found: Counter[str] = Counter()
    stop = asyncio.Event()

    async def one() -> None:
        async with front.caller() as caller:
            while not stop.is_set():
                await caller.send(request(f"/v2/models/{model}/infer"))
                found[at(await caller.reply())] += 1
                await asyncio.sleep(pause)

    calls = asyncio.gather(*(one() for _ in range(callers)))
    yield found
    stop.set()
    await calls


async def test_a_hot_model_gets_a_second_copy_and_loses_it_when_it_is_cold(tmp_path: Path) -> None:
    async with sites(3, lease_seconds=4) as here, estate(tmp_path, here, SOON) as front:
        first, second, third = in_rank("slow", here)
        async with load(front, "slow", 40) as places:
            await until(lambda: set(front.held()) == {first.host, second.host})
            await until(lambda: "/v2/models/slow/infer" in second.calls)
        assert set(places) == {first.host, second.host}
        async with load(front, "slow"):
            await until(lambda: list(front.held()) == [first.host])
        await until(lambda: second.released == ["slow"])
        assert not third.loads
        assert not [site.wrong for site in here if site.wrong]


async def test_a_hot_model_that_can_have_no_second_copy_goes_on_with_one(tmp_path: Path) -> None:
    async with sites(2) as here, estate(tmp_path, here, SOON) as front:
        first, second = in_rank("slow", here)
        second.room = 0
        async with load(front, "slow", 40) as places:
            await until(lambda: len(second.acquires) > 1)
        assert set(places) == {first.host}


async def test_proxies_that_found_a_model_at_two_places_come_together(tmp_path: Path) -> None:
    async with sites(2, lease_seconds=0.6) as here:
        first, second = in_rank("a", here)
        first.room = 0
        async with estates(tmp_path, here, 2) as (one, other):
            assert at(await one.call("a")) == second.host
            first.room = 9
            first.resident.add("a")
            async with load(one, "a"), load(other, "a"):
                await until(lambda: [*one.held()] == [*other.held()] == [first.host])
            await until(lambda: "a" in second.released)
        assert not [site.wrong for site in here if site.wrong]


@pytest.mark.parametrize("source", ["its policy", "its name alone"])
async def test_a_model_in_use_moves_before_its_replica_leaves(tmp_path: Path, source: str) -> None:
    async with sites(2, lease_seconds=0.6) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        async with load(front, "a", 2) as places:
            await until(lambda: len(first.calls) > 5)
            if source == "its policy":
                first.accepts = False
            else:
                front.addresses[:] = [each for each in front.addresses if each[1][0] != first.host]
            await until(lambda: list(front.held()) == [second.host] and second.calls)
        assert set(places) == {first.host, second.host}
        await until(lambda: first.released == ["a"])


async def test_a_new_replica_gets_called_models_and_ranks_first_if_it_has_memory(tmp_path: Path) -> None:
    models, often = ("a", "b", "c", "d", "cold"), replace(OFTEN, lease_again_seconds=0.3, spare_seconds=0.3)
    async with sites(3, lease_seconds=2) as here, estate(tmp_path, here[:2], often) as front:
        newcomer = here[2]
        theirs = {model for model in models if in_rank(model, here)[0] is newcomer}
        newcomer.room = len(theirs)
        async with AsyncExitStack() as stack:
            for model in models:
                await stack.enter_async_context(load(front, model))
            await until(lambda: sum(map(len, front.held().values())) == len(models))
            before = {model: host for host, held in front.held().items() for model in held}
            front.addresses.append((socket.AF_INET, (newcomer.host, newcomer.triton.port)))
            await until(lambda: set(front.held()[newcomer.host]) == theirs)
            await until(lambda: sum(map(len, front.held().values())) == len(models))
            after = {model: host for host, held in front.held().items() for model in held}
        assert {model for model in models if before[model] != after[model]} == theirs
        assert not [site.wrong for site in here if site.wrong]


async def test_requests_of_sequences_stay_at_one_replica_however_hot_the_model_is(tmp_path: Path) -> None:
    async with sites(3, sequential=True) as here, estate(tmp_path, here) as front:
        body = b'{"inputs":[],"parameters":{"sequence_id":%d}}'

        async def call(number: int) -> str:
            return at(await front.ask(request("/v2/models/slow/infer", body % number)))

        found = await asyncio.gather(*(call(number) for number in range(1, 60)))
        assert set(found) == {in_rank("slow", here)[0].host}
        assert len(front.held()) == 1


async def test_a_model_whose_load_outlasts_the_wait_is_loaded_at_one_replica_only(tmp_path: Path) -> None:
    async with sites(2, load_seconds=1.0, wait_seconds=0.2) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        reply = await front.call("a")
        assert (reply.status, reply.json()["reason"]) == (503, "loading")
        await until(lambda: "a" in first.resident)
        assert at(await front.call("a")) == first.host
        assert (first.loads, second.loads) == ({"a": 1}, {})
