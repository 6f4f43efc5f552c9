import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from tidegate_contracts.proxy_process import METRICS_PATH, SERVER_READY_PATH
from tidegate_proxy.settings import Tunables
from tidegate_proxy.upstream import health_check
from tidegate_proxy.upstream.breaker import FAILURES, Breaker
from tidegate_proxy.upstream.replica import Replica

from lab.local_plane.process import free_ports

from ..http.running_proxy import (
    METADATA,
    MODEL,
    RIG,
    RunningProxy,
    model,
    request,
    routing_table,
    running_proxy,
    served,
    until,
)
from ..http.upstream import answering, hang, only, upstream
from ..residency.estate import at, estate
from ..residency.standin import sites

pytestmark = pytest.mark.anyio
KNOWN_SECONDS = 3.0


def is_unresponsive(here: RunningProxy, which: int = 0) -> bool:
    return bool(here.pool.replicas[which].breaker.is_unresponsive())


async def readiness(here: RunningProxy, server: str = "vision") -> tuple[int, str]:
    status, [line] = await here.admin(f"{SERVER_READY_PATH}/{server}")
    return status, line


async def test_a_proxy_without_cpu_time_does_not_treat_its_replicas_as_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed, often = list[str](), replace(RIG, check_seconds=0.1)
    monkeypatch.setattr(Breaker, "unanswered", lambda *given: missed.append(given[-1]))
    async with upstream() as one, upstream() as two, running_proxy(tmp_path, one, two, tunables=often):
        began = len(one.checked)
        for _ in range(6):
            time.sleep(health_check.ANSWER_SECONDS + 0.1)
            await asyncio.sleep(0)
        await until(lambda: len(one.checked) > began + 1)
    assert not missed


async def test_a_proxy_that_starts_knows_which_replicas_are_there(tmp_path: Path) -> None:
    async with running_proxy(tmp_path, *free_ports(1)) as here:
        status, why = await readiness(here)
        assert (status, why.endswith(": connections are refused")) == (503, True)
        reply = await here.ask()
        assert reply.json()["detail"] == "No replica of vision/main can be used: connections are refused."


async def test_a_replica_that_hangs_is_passed_over_and_one_that_wakes_up_is_used(tmp_path: Path) -> None:
    async with upstream() as good, upstream() as bad, running_proxy(tmp_path, bad, good) as here:
        bad.is_alive, bad.act = False, hang
        await until(lambda: is_unresponsive(here), KNOWN_SECONDS)
        assert {(await here.ask()).status for _ in range(20)} == {200}
        assert not bad.requests
        assert await readiness(here) == (200, "ready")
        bad.is_alive, bad.act = True, None
        await until(lambda: not is_unresponsive(here), KNOWN_SECONDS)
        for _ in range(20):
            await here.ask()
        assert bad.requests


async def test_a_call_in_flight_at_a_silent_replica_continues(here: RunningProxy) -> None:
    go_on = asyncio.Event()
    here.replica.act = answering(go_on=go_on)
    calling = asyncio.ensure_future(here.ask())
    await until(lambda: here.replica.requests)
    here.replica.is_alive = False
    await until(lambda: is_unresponsive(here), KNOWN_SECONDS)
    assert (await here.ask(METADATA)).status == 503
    go_on.set()
    assert (await calling).status == 200


async def test_calls_at_a_silent_replica_release_their_slots(tmp_path: Path) -> None:
    async with served(tmp_path, hang, concurrency=2) as here:
        places = here.proxy.shared.limiter
        first = [asyncio.ensure_future(here.ask()) for _ in range(6)]
        await until(lambda: (places.in_flight, places.waiting) == (2, 4))
        here.replica.is_alive = False
        done, left = await asyncio.wait(first, timeout=KNOWN_SECONDS)
        assert [call.result().problem for call in done] == ["busy"] * 4, "queued calls are refused"
        assert (await asyncio.wait_for(here.ask(), 1)).problem == "busy"
        for call in left:
            call.cancel()
        await until(lambda: not here.proxy.shared.open_calls)
        assert (places.in_flight, places.waiting, here.pool.replicas[0].in_flight) == (0, 0, 0)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_read_only_request_is_retried_elsewhere_or_refused_if_its_replica_falls_silent(
    tmp_path: Path, number: int
) -> None:
    async with upstream(hang) as bad, upstream() as good, running_proxy(tmp_path, *[bad, good][:number]) as here:
        looking = [asyncio.ensure_future(here.ask(METADATA)) for _ in range(20)]
        await until(lambda: bad.requests)
        bad.is_alive = False
        replies = [await asyncio.wait_for(each, KNOWN_SECONDS) for each in looking]
        assert {reply.status for reply in replies} == ({503} if number == 1 else {200})


@pytest.mark.parametrize("number", [1, 2])
async def test_waiting_for_a_load_ends_when_triton_dies(tmp_path: Path, number: int) -> None:
    async with sites(number, load_seconds=30, wait_seconds=30) as here, estate(tmp_path, here) as front:
        calling = asyncio.ensure_future(front.call("a"))
        await until(lambda: any(site.loading for site in here))
        [loading] = [site for site in here if site.loading]
        for site in here:
            site.load_seconds = 0.0
        await loading.triton.close()
        reply = await asyncio.wait_for(calling, KNOWN_SECONDS)
        if number == 1:
            assert (reply.status, reply.problem) == (503, "busy")
            assert "connections are refused" in reply.json()["detail"]
        else:
            assert at(reply) in {site.host for site in here} - {loading.host}


async def test_a_rolling_update_and_a_load_raise_no_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.pools")
    async with upstream() as one, upstream() as two, upstream() as three, running_proxy(tmp_path, one, two) as here:
        found: set[object] = set()
        over = False

        async def look() -> None:
            while not over:
                found.add(await readiness(here))
                found.add((await here.ask()).status)

        looking = asyncio.ensure_future(look())
        for old, left in ((one, [two, three]), (two, [three])):
            here.leads_to(*left)  # Kubernetes ends the pod: its address leaves the pool's name, then the pod stops
            await here.look_up()
            await old.close()
            await until(lambda left=left: len(here.pool.replicas) == len(left), 6)
        three.act = answering(seconds=0.5)  # it loads a model meanwhile, and is slow
        await asyncio.sleep(1.0)
        over = True
        await looking
        assert found == {(200, "ready"), 200}
        assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_server_is_ready_when_each_pool_that_models_are_in_can_be_called(tmp_path: Path) -> None:
    nowhere = {"name": "large", "host": "nowhere.test"}
    async with upstream() as replica, running_proxy(tmp_path, replica, table=routing_table([MODEL], nowhere)) as here:
        assert await readiness(here) == (200, "ready"), "no model is in the other pool"
        large = [model("large", pool="large")]
        here.write("routing.json", routing_table(large, nowhere).model_dump_json(by_alias=True))
        await here.proxy.config.watched[0].look()
        assert await readiness(here) == (503, "no replica of vision/large is there: nowhere.test")
        here.write("routing.json", routing_table(large, nowhere | {"empty": True}).model_dump_json(by_alias=True))
        await here.proxy.config.watched[0].look()
        assert await ready(here, "large") == [200, 200, 503], "only its model is not ready, so there is no alarm"
        _, lines = await here.admin(METRICS_PATH)
        assert not [line for line in lines if line.startswith("tidegate_proxy_pool_ready{") and "large" in line]


async def ready(here: RunningProxy, name: str) -> list[int]:
    paths = ("/v2/health/ready", f"/v2/models/{name}/ready")
    statuses = [(await here.ask(request(path, method="GET"))).status for path in paths]
    return [(await readiness(here))[0], *statuses]


def fails_calls(replica: Replica, seconds: float = 0.0) -> Breaker:
    for _ in range(FAILURES):
        replica.breaker.failed(monotonic() - seconds)
    return replica.breaker


async def test_a_replica_is_not_ready_while_it_is_only_tried(here: RunningProxy) -> None:
    breaker = fails_calls(here.pool.replicas[0], 2)
    assert breaker.state(monotonic()) == "half-open"
    assert await ready(here, MODEL) == [503, 400, 503]
    assert breaker.state(monotonic()) == "half-open", "a request for readiness is not a trial"
    assert (await here.ask()).status == 200
    assert await ready(here, MODEL) == [200, 200, 200]


async def test_an_on_demand_model_is_not_ready_while_its_replica_is_only_tried(tmp_path: Path) -> None:
    async with sites(lease_seconds=30) as [site], estate(tmp_path, [site]) as here:
        at(await here.call("a"))
        fails_calls(here.pool.replicas[0], 2)
        for name in ("a", "cold"):
            assert await ready(here, name) == [503, 400, 503]
        assert (await here.look("a")).status == 503
        at(await here.call("a"))
        assert await ready(here, "a") == [200, 200, 200]


async def test_responses_to_read_only_requests_do_not_hide_hanging_calls(tmp_path: Path) -> None:
    async with served(tmp_path, only("POST", hang), request_timeout_seconds=1) as here:
        for _ in range(FAILURES):
            calling = asyncio.ensure_future(here.ask())
            assert (await here.ask(METADATA)).status == 200
            assert (await calling).status == 504
        assert await ready(here, MODEL) == [503, 400, 503]


async def test_the_end_of_a_pools_last_replica_is_a_warning(
    here: RunningProxy, caplog: pytest.LogCaptureFixture
) -> None:
    here.leads_to()
    await here.look_up()
    assert (await here.ask()).status == 200, "it answers still"
    await here.replica.close()
    await until(lambda: not here.pool.replicas, 6)
    assert await readiness(here) == (503, "no replica of vision/main is there: pool.test")
    [warning] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "gets no calls: connections are refused" in warning.getMessage()


@asynccontextmanager
async def before_grpc(folder: Path, greets: bool = True, tunables: Tunables = RIG) -> AsyncIterator[RunningProxy]:
    """Run a proxy with a replica that answers no health checks, and whose gRPC port answers only if `greets`."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if greets:
            writer.write(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        await asyncio.sleep(60)

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    table = routing_table(grpc_port=listening.sockets[0].getsockname()[1])
    async with listening, upstream() as replica, running_proxy(folder, replica, table=table, tunables=tunables) as here:
        here.replica, replica.is_alive = replica, False
        yield here


@pytest.mark.parametrize("greets", [True, False])
async def test_the_grpc_port_shows_whether_a_replica_is_busy_or_hung(tmp_path: Path, greets: bool) -> None:
    async with before_grpc(tmp_path, greets) as here:
        replica = here.replica
        if not greets:
            await until(lambda: is_unresponsive(here), KNOWN_SECONDS)
            return
        before = len(replica.checked)
        await until(lambda: len(replica.checked) > before + 4, 10)
        assert await readiness(here) == (200, "ready")
        breaker = here.pool.replicas[0].breaker
        assert (breaker.state(monotonic()), breaker.failures < FAILURES) == ("closed", True)
        await replica.close()  # It refuses connections, so the gRPC port does not matter.
        await until(lambda: is_unresponsive(here), KNOWN_SECONDS)


async def test_a_replica_with_a_hung_http_server_is_detected_and_used_again_when_it_recovers(tmp_path: Path) -> None:
    async with before_grpc(tmp_path, tunables=replace(RIG, excused_seconds=2.0)) as here:
        await until(lambda: is_unresponsive(here), 2.0 + KNOWN_SECONDS)
        checked = len(here.replica.checked)
        await until(lambda: len(here.replica.checked) > checked + 1, 5)
        assert is_unresponsive(here), "the gRPC port alone does not prove that it is alive"
        here.replica.is_alive = True
        await until(lambda: not is_unresponsive(here), KNOWN_SECONDS)


@pytest.mark.parametrize(
    ("greets", "health"), [(True, b""), (False, b""), (False, b"404 Not Found"), (False, b"503 Service Unavailable")]
)
async def test_a_new_replica_gets_no_calls_before_its_first_health_check_is_answered_with_200(
    tmp_path: Path, greets: bool, health: bytes
) -> None:
    async with before_grpc(tmp_path, greets) as here, upstream() as new:
        here.replica.is_alive = True
        new.is_alive, new.health, new.act = bool(health), health, hang
        here.leads_to(here.replica, new)
        looking, statuses = asyncio.ensure_future(here.look_up()), list[int]()
        while not looking.done() or len(here.pool.replicas) < 2:
            statuses.append((await here.ask()).status)
        statuses += [(await here.ask()).status for _ in range(20)]
        assert set(statuses) == {200}
        assert not new.requests
        new.is_alive, new.health, new.act = True, b"200 OK", None
        while not new.requests:
            assert (await here.ask()).status == 200


async def test_a_new_replica_that_hangs_delays_no_other_nor_the_table_that_names_it(tmp_path: Path) -> None:
    followed: list[int] = []
    async with upstream() as hung, upstream() as good, upstream() as new:
        hung.is_alive = False
        async with running_proxy(tmp_path, hung, good) as here, asyncio.timeout(health_check.ANSWER_SECONDS):
            assert (await here.ask()).status == 200, "the proxy's start waited for the hung replica"
            leases = SimpleNamespace(follow=lambda replicas: followed.append(len(replicas)))
            here.leads_to(hung, good, new)
            with patch.object(here.pool, "leases", leases):
                await here.look_up()
                assert followed[-1] == 2, "the lease holder waited for the hung replica"
            here.pool.leases = None
