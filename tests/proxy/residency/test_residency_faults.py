import asyncio
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tidegate_contracts import lease
from tidegate_proxy.residency.replica_leases import MOST_SILENT, ReplicaLeases

from ..http.running_proxy import request, until
from ..http.upstream import Received, Upstream, answer, only
from .estate import OFTEN, Estate, at, estate, estates
from .standin import UNKNOWN_VERSION, Site, sites
from .test_residency_copies import in_rank, load

pytestmark = pytest.mark.anyio


def wrong(here: list[Site]) -> list[str]:
    return [path for site in here for path in site.wrong]


def give_back(here: Estate, site: Site) -> ReplicaLeases:
    policy = policy_of(here, site)
    policy.drop(policy.leases["a"])
    policy.silent = 0
    policy.give_back()
    return policy


def policy_of(here: Estate, site: Site) -> ReplicaLeases:
    return next(each for each in here.leases.table.replicas.values() if each.replica.address[0] == site.host)


async def test_after_a_restart_every_lease_is_void_and_models_are_loaded_again(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        for model in ("a", "b"):
            await here.call(model)
        site.restart()
        reply = await here.call("a")  # the proxy does not know yet
        assert (reply.status, reply.problem) == (503, "busy")
        assert "has just lost the model a" in reply.json()["detail"]
        await until(lambda: not here.held())
        assert [at(await here.call(model)) for model in ("a", "b")] == [site.host] * 2
        assert site.loads == {"a": 2, "b": 2}


async def test_a_lost_model_is_recognised_in_a_response_in_any_pieces(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        await here.call("a")
        body = b'{"error":"Request for unknown model: \'a\' is not found"}'

        async def drip(_: Upstream, writer: asyncio.StreamWriter, __: Received) -> None:
            for part in (b"HTTP/1.1 404 -\r\nContent-Length: %d\r\n\r\n" % len(body), body[:20], body[20:]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.05)

        site.triton.act = drip
        reply = await here.call("a")
        assert (reply.status, reply.problem, reply.json()["reason"]) == (503, "busy", "lost")


async def test_leases_of_a_hung_policy_expire_and_other_replicas_are_used(tmp_path: Path) -> None:
    async with sites(2, lease_seconds=0.5) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        assert at(await front.call("a")) == first.host
        first.how = "never"
        since = began = monotonic()
        while (where := at(await front.call("a"))) == first.host:
            assert began - since < 0.5, "it began later than the lease has ended"
            await asyncio.sleep(0.01)
            began = monotonic()
        assert where == second.host
        assert not wrong(here)


async def test_a_policy_whose_process_has_ended_stops_loads_and_no_inference_at_any_proxy(tmp_path: Path) -> None:
    async with sites(lease_seconds=0.3) as [site], estates(tmp_path, [site], 2) as (one, other):
        assert at(await one.call("a")) == site.host
        await until(lambda: all(each.incarnation for each in other.leases.table.replicas.values()))
        await site.policy.close()
        site.leases["dead policies", "a"] = monotonic() + 60  # no one unloads
        end = monotonic() + 1.5
        while monotonic() < end:
            for proxy in (one, other):
                assert at(await proxy.call("a")) == site.host
            await asyncio.sleep(0.02)
        assert (await other.call("b")).status == 503
        assert site.loads == {"a": 1}
        site.resident.clear()  # Triton has restarted meanwhile
        await until(lambda: one.leases.held(monotonic()) == {f"{site.host}:{site.triton.port}": 0})
        assert (await one.call("a")).status == 503


async def test_a_call_gets_its_model_although_renewals_find_the_policy_process_ended(
    tmp_path: Path,
) -> None:
    async with sites(lease_seconds=0.3) as [site], estates(tmp_path, [site], 2) as (one, other):
        assert at(await one.call("a")) == site.host
        policy = policy_of(other, site)
        await until(lambda: policy.incarnation)
        await site.policy.close()
        site.leases["dead policies", "a"] = monotonic() + 60  # no one unloads
        await until(lambda: policy.silent == 1)

        async def ready_later(_: Upstream, writer: asyncio.StreamWriter, __: Received) -> None:
            await until(lambda: policy.silent > MOST_SILENT)
            await answer(writer)

        site.triton.act = only("/ready", ready_later, site.serve)
        assert at(await other.call("a")) == site.host
        assert policy.silent > MOST_SILENT, "meanwhile"


async def test_a_replica_whose_triton_fails_is_left_and_its_leases_are_not_used(tmp_path: Path) -> None:
    async with sites(2) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        assert at(await front.call("a")) == first.host
        await first.triton.close()
        for _ in range(10):
            assert at(await front.call("a")) == second.host
        assert front.proxy.shared.limiter.in_flight == 0
        assert not wrong(here)


async def test_models_of_a_policy_that_is_silent_for_a_while_are_not_loaded_elsewhere(tmp_path: Path) -> None:
    async with sites(2, lease_seconds=1.5) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        async with load(front, "a") as places:
            await until(lambda: first.calls)
            await first.policy.close()
            first.leases["dead policies", "a"] = monotonic() + 60  # no one unloads
            policy = policy_of(front, first)
            await until(lambda: (front.leases.silent_seconds(policy.replica) or 0) > first.lease_seconds)
            calls = places[first.host]
            await until(lambda: places.total() > calls + 5)
        assert set(places) == {first.host}
        assert not second.loads


async def test_a_copy_that_cannot_be_used_is_not_kept_for_one_that_can(tmp_path: Path) -> None:
    later = replace(OFTEN, lease_again_seconds=0.7)  # by then its breaker is open
    async with sites(2, lease_seconds=30) as here, estate(tmp_path, here, later) as front:
        first, second = in_rank("a", here)
        await front.call("a")
        await first.triton.close()
        for _ in range(40):
            assert at(await front.call("a")) == second.host
            await asyncio.sleep(0.02)
        assert len(second.acquires) == 1, "its lease is kept, though its rank is lower"


async def test_a_version_that_is_not_loaded_is_triton_s_to_refuse_and_puts_no_lease_in_doubt(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        for model in ("a", "b"):
            await here.call(model)
        for _ in range(3):
            reply = await here.ask(request("/v2/models/a/versions/7/infer"))
            assert (reply.status, reply.json()["error"]) == (400, UNKNOWN_VERSION.format("a", 7))
        assert at(await here.ask(request("/v2/models/a/versions/1/infer"))) == site.host
        assert len(site.acquires) == 2
        site.resident.discard("a")
        assert (await here.call("a")).problem == "busy"
        policy = policy_of(here, site)
        assert policy.leases["a"].until == 0.0
        assert policy.leases["b"].until > monotonic(), "the error did not concern the other model"


async def test_a_grant_of_a_leaving_replica_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sites(2, lease_seconds=30) as here, estate(tmp_path, here) as front:
        first, second = in_rank("a", here)
        leases = front.leases
        policy = policy_of(front, first)
        await until(lambda: all(each.tried_once.is_set() for each in leases.table.replicas.values()))
        acquire = policy._client.acquire

        async def leave_first(message: lease.Acquire) -> lease.Answer:
            answer = await acquire(message)
            leases.table.replicas.pop(policy.replica).leave()  # in the turn of the response
            return answer

        monkeypatch.setattr(policy._client, "acquire", leave_first)
        assert at(await front.call("a")) == second.host
        await leases._rebalancer.look()
        assert first.acquires
        assert front.held() == {second.host: ["a"]}


async def test_a_release_that_is_late_ends_no_lease_that_was_granted_meanwhile(tmp_path: Path) -> None:
    async with sites(lease_seconds=20) as [site], estate(tmp_path, [site]) as here:
        await here.call("a")
        site.how = "slowly"
        give_back(here, site)
        await until(lambda: any("/release" in each.line for each in site.policy.requests))
        site.how = "well"
        assert at(await here.call("a")) == site.host
        assert not site.released
        await until(lambda: site.released)
        assert any(model == "a" for _, model in site.leases)
        assert not site.wrong
