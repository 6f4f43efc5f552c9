import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import pytest
from tidegate_contracts import lease

from ..http.running_proxy import until
from ..http.test_http_metrics import scrape, value
from .estate import at, estate
from .standin import sites

pytestmark = pytest.mark.anyio


async def test_a_model_is_ready_when_a_call_could_be_answered_whether_it_is_loaded_or_not(tmp_path: Path) -> None:
    async with sites(2, refuses={"b": lease.Quarantined(why="it failed")}) as here, estate(tmp_path, here) as front:
        here[0].resident.add("a")
        found = {model: (await front.look(f"{model}/ready")).status for model in ("a", "b", "cold", "absent")}
        assert found == {"a": 200, "b": 400, "cold": 200, "absent": 400}
        assert not any(site.acquires for site in here)


async def test_a_model_is_ready_without_a_policy_only_if_it_is_leased(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        await here.call("a")
        await site.policy.close()
        assert (await here.look("a/ready")).status == 200
        assert (await here.look("cold/ready")).status == 400


async def test_looking_again_and_again_keeps_no_lease(tmp_path: Path) -> None:
    async with sites(lease_seconds=0.3) as [site], estate(tmp_path, [site]) as here:
        await here.call("a")
        end = monotonic() + 5
        while here.held():
            assert monotonic() < end
            for what in ("ready", "stats"):
                assert (await here.look(f"a/{what}")).status == 200
            await asyncio.sleep(0.02)
        await until(lambda: site.released == ["a"])


@pytest.mark.parametrize("path", ["a", "a/config"])
async def test_metadata_and_configuration_are_the_models_own_so_they_load_it(tmp_path: Path, path: str) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        assert (await here.look(path)).status == 200
        assert site.loads["a"] == 1


async def test_operators_see_leases_waits_and_outcomes(tmp_path: Path) -> None:
    refuses = {"absent": lease.Unknown(why="there is none")}
    async with sites(2, room=0, refuses=refuses) as here, AsyncExitStack() as stack:
        here[0].resident.add("a")
        front = await stack.enter_async_context(estate(tmp_path, here))
        assert at(await front.call("a")) == here[0].host
        assert (await front.call("b")).status == 503
        assert (await front.call("absent")).status == 404
        found = await scrape(front)
        pool = {"server": "vision", "pool": "main"}
        assert value(found, "leases", replica=f"127.0.0.1:{here[0].triton.port}", **pool) == 1
        assert value(found, "leases", replica=f"127.0.0.2:{here[1].triton.port}", **pool) == 0
        outcomes = {each: value(found, "lease_acquires_total", outcome=each, **pool) for each in ("granted", "unknown")}
        assert outcomes == {"granted": 1, "unknown": 1}
        # Both were, and again the one that has memory first.
        assert value(found, "lease_acquires_total", outcome="busy", **pool) == 3
        assert value(found, "lease_spills_total", **pool) == 1
        assert value(found, "lease_wait_seconds_count", **pool) == 3
        assert value(found, "lease_waiting", **pool) == 0
        await here[1].policy.close()
        await until(lambda: sum(front.leases.silent().values()) == 1)
        found = await scrape(front)
        assert value(found, "policy_silent", replica=f"127.0.0.2:{here[1].triton.port}", **pool) == 1
