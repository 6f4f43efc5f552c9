"""The proxies' lease code against the eviction policy's core, in simulated time. Whatever happens, no leased model is
unloaded, a request begins only where its model is, and none waits for ever."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate_proxy.problems import ProblemType

from .world import LEASE_SECONDS, LONGEST_WAIT, MODELS, World, play, simulated


@pytest.fixture(scope="module", autouse=True)
def in_simulated_time() -> Iterator[None]:
    with simulated():
        yield


def check(world: World) -> None:
    assert not world.wrong
    assert set(world.refused) <= {ProblemType.BUSY}
    for proxy in world.proxies:
        assert proxy.waiting == 0
        assert not proxy.table.replicas
        assert not any(model.leases for model in proxy.table.models.values())


worlds = st.builds(World, st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 2), st.integers(1, 6))


@settings(suppress_health_check=list(HealthCheck))
@given(worlds, st.sampled_from([0.0, 0.05, 0.3]))
def test_no_request_is_ever_begun_at_a_replica_that_may_unload_its_model(world: World, loss: float) -> None:
    world.loss = loss

    async def troubled() -> None:
        trouble = asyncio.ensure_future(world.trouble())
        await world.live(120.0)
        trouble.cancel()

    play(world, troubled())
    check(world)
    assert world.longest_wait < LONGEST_WAIT


@settings(suppress_health_check=list(HealthCheck))
@given(worlds)
def test_a_call_that_returns_after_retry_after_is_served_in_the_end(world: World) -> None:
    """More models than fit, each with one caller that then leaves it idle for a while: all callers get a turn."""

    async def caller(model: str) -> None:
        for _ in range(3):
            began = world.loop.now
            while not await world.request(world.proxies[0], model):
                assert world.loop.now - began < 300
                await asyncio.sleep(world.chance.uniform(0.5, 3))
            await asyncio.sleep(2 * LEASE_SECONDS)

    async def all_of_them() -> None:
        await asyncio.gather(*(caller(model) for model in MODELS))

    play(world, all_of_them())
    check(world)
    assert world.begun == 3 * len(MODELS)


def test_without_faults_nothing_is_refused_and_every_lease_is_released() -> None:
    world = World(7, replicas=3, proxies=2, room=9)
    world.loads, world.delays = (0.1, 1.0), [0.0, 0.001, 0.3]
    play(world, world.live(300.0), asyncio.sleep(2 * LEASE_SECONDS))
    check(world)
    assert world.begun > 150
    assert not world.refused
    assert not any(site.core.leases for site in world.sites.values())
