"""A table of 10 000 models is taken over while requests go on, and the one before it is forgotten."""

import asyncio
import gc
import time
from pathlib import Path

import pytest
from tidegate_contracts import routing
from tidegate_proxy.routes import Route

from ..http.house import House, house, request, routing_table, until
from ..http.test_http_faults import write
from ..http.upstream import upstream

pytestmark = pytest.mark.anyio
MODELS = 10_000
LONGEST_HELD = 0.15
"""Seconds of processor time for which nothing else may have its turn: all of the work takes many times as long."""


def table(generation: int) -> str:
    models = [
        routing.Model(name=f"model-{number}-{generation}", server="vision", pool="main") for number in range(MODELS)
    ]
    models[0] = routing.Model(name="resnet", server="vision", pool="main")
    return routing_table(models).model_dump_json(by_alias=True)


async def longest_held(work: "asyncio.Future[None]") -> tuple[float, float]:
    """Return the longest time that the loop gave nobody a turn until work is done, and all of its time."""
    longest, begin = 0.0, time.thread_time()
    before = begin
    while not work.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
    await work
    return longest, time.thread_time() - begin


async def take_over(here: House, text: str) -> tuple[float, float]:
    write(here, "routing.json", text)
    return await longest_held(asyncio.ensure_future(here.proxy.config.watched[0].look()))


async def test_ten_thousand_models_are_taken_over_and_nobody_waits(tmp_path: Path) -> None:
    async with upstream() as replica, house(tmp_path, replica) as here:
        for each in here.proxy._tasks:
            each.cancel()  # this test looks by itself
        texts = [table(generation) for generation in range(3)]
        stopped, statuses = False, []

        async def call() -> None:
            async with here.caller() as caller:
                while not stopped:
                    await caller.send(request())
                    statuses.append((await caller.reply()).status)

        await take_over(here, texts[0])
        calls = [asyncio.ensure_future(call()) for _ in range(4)]
        await until(lambda: len(statuses) > 20)
        for text in texts[1:]:
            before = len(statuses)
            longest, whole = await take_over(here, text)
            assert longest < LONGEST_HELD, f"{longest:.3f} s of {whole:.3f} s"
            assert len(statuses) > before + 20, "requests went on meanwhile"
        stopped = True
        await asyncio.gather(*calls)
        assert set(statuses) == {200}
        assert len(here.proxy.config.routes.of_server("vision")) == MODELS
        here.proxy.config.authorizer.sweep()
        gc.collect()
        left = sum(1 for each in gc.get_objects() if type(each) is Route)
        assert left <= MODELS + 10, "the tables before it are forgotten"
