from datetime import UTC, datetime
from pathlib import Path

import pytest
from tidegate_contracts import lease
from tidegate_contracts.whereabouts import VisibleModel, Whereabouts

from ..http.running_proxy import request, until
from .estate import Estate, estate
from .standin import sites

pytestmark = pytest.mark.anyio
LOOK = request("/models", method="GET")


async def seen(here: Estate) -> dict[str, VisibleModel]:
    reply = await here.ask(LOOK)
    assert reply.status == 200, reply.body
    assert reply.headers["cache-control"] == "no-store"
    return {each.model: each for each in Whereabouts.model_validate_json(reply.body).models}


async def test_each_model_is_shown_as_its_policies_see_it_and_none_is_loaded(tmp_path: Path) -> None:
    async with sites(2, refuses={"b": lease.Quarantined(why="it failed")}) as here, estate(tmp_path, here) as front:
        here[1].resident.add("a")
        found = await seen(front)
        assert {name: each.state for name, each in found.items() if name in ("a", "b", "cold", "absent")} == {
            "a": "resident",
            "b": "quarantined",
            "cold": "cold",
            "absent": "unknown",
        }
        assert found["absent"].why == "the eviction policy does not know it"
        assert [each.state for each in found["a"].places] == ["cold", "resident"]
        assert found["a"].since is not None
        [failure] = found["b"].places[0].failures
        assert (failure.version, failure.why) == (None, "it failed")
        assert 60 <= (datetime.now(UTC) - failure.since).total_seconds() < 90
        assert found["a"].places[0].failures == ()
        assert not any(site.acquires for site in here)


async def test_holders_and_waiters_of_a_model_are_shown(tmp_path: Path) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        site.resident.add("a")
        await here.call("a")
        [place] = (await seen(here))["a"].places
        [held] = place.leases
        assert (held.in_flight, place.waiters, place.versions) == (0, 0, (1,))
        assert held.holder in {holder for holder, _ in site.leases}


async def test_a_model_with_silent_replicas_is_unreachable_with_the_reason(tmp_path: Path) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        await site.policy.close()
        found = await seen(here)
        assert found["a"].state == "unseen"
        assert found["a"].why.startswith(f"the eviction policy of 127.0.0.1:{site.triton.port} does not respond: ")
        await site.triton.close()
        await until(lambda: here.pool.why_not_ready() != "")
        assert (await seen(here))["a"].state == "unreachable"
        gone = (await seen(here))["a"]
        assert "gets no calls: " in gone.why
        assert gone.since is not None
        assert 0 <= (datetime.now(UTC) - gone.since).total_seconds() < 30


async def test_a_model_without_memory_waits_since_its_first_request_and_the_holders_are_named(
    tmp_path: Path,
) -> None:
    async with sites(why={"b": "there is no room"}, starving={"b": 600.0}) as [site], estate(tmp_path, [site]) as here:
        site.resident |= {"a", "of-others"}
        found = (await seen(here))["b"]
        assert (found.state, found.why) == ("queued", "there is no room: a, others that you cannot see")
        assert found.since is not None
        assert 600 <= (datetime.now(UTC) - found.since).total_seconds() < 630
        only = Whereabouts.model_validate_json((await here.ask(request("/models/b", method="GET"))).body)
        assert only.models[0].why == found.why, "also if only that model is queried"
