import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ..http.running_proxy import RIG, RunningProxy, request, running_proxy, served, until
from ..http.upstream import Act, Received, Upstream, answering, head, only, raw, upstream
from .tables import model, table

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
MODELS = (model("plain"), model("shared", {2: 100}))
NOT_FOUND = b'{"message":"Model not found","type":"Not Found","code":404}'
NOT_READY = b'{"message":"Model `plain` is not ready to serve requests yet.","type":"Service Unavailable","code":503}'
NOT_BEGUN = b'{"message":"Failed to generate completions","type":"Internal Server Error","code":500}'
FULL = b'{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","code":503}'
BROKEN = b'{"message":"Internal server error","type":"internal_server_error","code":500}'


def send(status: int, body: bytes, *has: str) -> Act:
    """Return this response, from a replica that lists these models."""
    listed = json.dumps({"object": "list", "data": [{"id": name} for name in has]}).encode()
    start = head(b"content-type: application/json", b"content-length: %d" % len(body), status=b"%d -" % status)
    return only("GET /v1/models ", answering(listed), raw(start, body))


def chat(name: str = "plain", size: int = 0) -> bytes:
    return request(CHAT, json.dumps({"model": name, "x": "y" * size}).encode())


@pytest.mark.parametrize(("status", "body"), [(500, NOT_BEGUN), (503, NOT_READY)])
@pytest.mark.parametrize(
    ("sizes", "status_of_the_last"),
    [
        ("L L L", 503),  # It may be down.
        ("L s! L s! L", 503),  # It is down.
        ("L s L", 413),
        ("L s L L s! L", 413),  # Although it is down now, the body is too long.
        ("L s L+", 413),
        ("L+ s L", 503),
        ("L s L-", 503),  # Shorter than any that failed.
        ("L s L! L", 503),  # It has accepted that length since.
        ("s L", 503),
    ],
)
async def test_a_long_body_is_refused_once_the_server_answers_shorter_ones_and_not_this_one(
    tmp_path: Path, status: int, body: bytes, sizes: str, status_of_the_last: int
) -> None:
    """L: 2 MiB, s: short. The server accepts only short ones, and does the opposite at `!`."""
    lengths = {"s": 10, "L": 2 << 20, "L+": (2 << 20) + 1000, "L-": (2 << 20) - 1000}
    async with served(tmp_path, table=table(MODELS), body_limit_bytes=8 << 20) as here:
        for word in sizes.split():
            takes = (word[0] == "s") != word.endswith("!")
            here.replica.act = None if takes else send(status, body)
            reply = await here.ask(chat(size=lengths[word.rstrip("!")]))
            assert (reply.status == 200) == takes
        assert reply.status == status_of_the_last
        if status_of_the_last == 413:
            assert reply.json()["error"]["type"] == "invalid_request_error"


async def test_a_long_body_is_refused_the_second_time_by_a_server_that_lists_the_model(tmp_path: Path) -> None:
    async with served(tmp_path, send(503, NOT_READY, "plain"), table=table(MODELS), body_limit_bytes=8 << 20) as here:
        assert [(await here.ask(chat(size=2 << 20))).status for _ in range(3)] == [503, 413, 413]


async def test_long_bodies_that_fail_at_one_time_are_one_failure(tmp_path: Path) -> None:
    async with served(tmp_path, send(503, NOT_READY, "plain"), table=table(MODELS), body_limit_bytes=8 << 20) as here:
        replies = await asyncio.gather(*(here.ask(chat(size=2 << 20)) for _ in range(4)))
        assert {reply.status for reply in replies} == {503}


async def test_an_old_failure_proves_nothing(tmp_path: Path) -> None:
    given = {"table": table(MODELS), "body_limit_bytes": 8 << 20, "tunables": replace(RIG, untaken_seconds=0.0)}
    async with served(tmp_path, send(503, NOT_READY, "plain"), **given) as here:
        assert {(await here.ask(chat(size=2 << 20))).status for _ in range(3)} == {503}


async def test_one_replica_proves_nothing_about_another(tmp_path: Path) -> None:
    act, never = send(503, NOT_READY), replace(RIG, avoided_seconds=0.0)
    async with (
        upstream(act) as one,
        upstream() as two,
        running_proxy(tmp_path, one, two, table=table(MODELS), body_limit_bytes=8 << 20, tunables=never) as here,
    ):
        await until(lambda: len(here.pool.replicas) == 2)
        statuses = {(await here.ask(chat(size=size))).status for size in (2 << 20, 10) * 20}
        assert statuses == {200, 503}


def calls(replica: Upstream) -> int:
    return sum(each.line.startswith("POST ") for each in replica.requests)


@asynccontextmanager
async def two(root: Path, act: Act) -> AsyncIterator[tuple[RunningProxy, Upstream, Upstream]]:
    async with upstream(act) as one, upstream() as other, running_proxy(root, one, other, table=table(MODELS)) as here:
        await until(lambda: len(here.pool.replicas) == 2)
        yield here, one, other


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, NOT_FOUND), (503, NOT_READY), (500, NOT_BEGUN)],
    ids=["no-model", "not-ready", "no-worker"],
)
async def test_its_calls_are_answered_by_another_and_it_gets_no_more_for_a_while(
    tmp_path: Path, status: int, body: bytes
) -> None:
    async with two(tmp_path, send(status, body)) as (here, one, other):
        for number in range(40):
            name = ("plain", "shared")[number % 2]
            reply = await here.ask(chat(name))
            assert (reply.status, reply.json()) == (200, {"ok": 1})
            assert json.loads(other.requests[-1].body)["model"] == ("plain", "shared-v2")[number % 2]
        assert calls(one) == 1
        assert calls(other) == 40
        assert here.proxy.shared.meter.upstream_errors == {("llm", "lost"): 1}
        assert {replica.in_flight for replica in here.pool.replicas} == {0}
        assert here.proxy.shared.limiter.in_flight == 0


async def test_without_another_a_model_of_the_table_is_busy_and_never_unknown(tmp_path: Path) -> None:
    async with served(tmp_path, send(404, NOT_FOUND, "plain", "shared"), table=table(MODELS)) as here:
        reply = await here.ask(chat("shared"))  # it has `shared`, and not `shared-v2`
        assert (reply.status, reply.json()["error"]["code"]) == (503, "busy")
        assert reply.headers["retry-after"] == "1"
        assert here.proxy.shared.meter.model_problems == {("llm", "shared", "busy", "lost"): 1}
        reply = await here.ask(chat("plain"))  # it has the model, but not the path
        assert (reply.status, reply.body) == (404, NOT_FOUND)
        here.replica.act = send(503, NOT_READY)
        reply = await here.ask(chat())
        assert (reply.status, reply.body) == (503, NOT_READY)


@pytest.mark.parametrize(("status", "body"), [(500, BROKEN), (503, FULL)], ids=["broken", "full"])
async def test_an_error_that_is_not_about_the_model_passes_through(tmp_path: Path, status: int, body: bytes) -> None:
    async with two(tmp_path, send(status, body)) as (here, one, other):
        replies = [await here.ask(chat()) for _ in range(40)]
        assert {reply.status for reply in replies} == {200, status}
        assert {reply.body for reply in replies if reply.status == status} == {body}
        assert calls(one) + calls(other) == 40
        assert not here.proxy.shared.meter.upstream_errors


async def test_a_long_body_is_not_held_for_a_second_try(tmp_path: Path) -> None:
    async with two(tmp_path, send(404, NOT_FOUND)) as (here, one, other):
        other.is_alive = False
        await until(lambda: sum(replica.breaker.is_unresponsive() for replica in here.pool.replicas) == 1, 5)
        other.is_alive = True
        reply = await here.ask(chat(size=900_000))
        assert reply.status == 503
        assert calls(one) == 1


async def test_a_short_one_is_held_until_there_is_an_answer(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with served(tmp_path, answering(go_on=go_on), table=table(MODELS)) as here:
        held = here.proxy.shared.memory.callers
        asking = asyncio.create_task(here.ask(chat(size=200_000)))
        await until(lambda: here.replica.requests)
        assert held.held >= 200_000
        go_on.set()
        assert (await asking).status == 200
        await until(lambda: held.held < 50_000)


async def test_callers_of_a_lost_model_share_one_query_for_a_bounded_list(
    tmp_path: Path,
) -> None:
    go_on, lists = asyncio.Event(), 0

    async def listing(made: Upstream, writer: asyncio.StreamWriter, received: Received) -> None:
        nonlocal lists
        lists += 1
        await go_on.wait()
        entries = b'{"id":"plain"},' * 1000
        await raw(head(b"content-length: 2000000000"), b'{"data":[', *[entries] * 200)(made, writer, received)

    act = only("GET /v1/models ", listing, send(404, NOT_FOUND))
    async with served(tmp_path, act, table=table(MODELS)) as here:
        asking = [asyncio.create_task(here.ask(chat())) for _ in range(20)]
        await until(lambda: calls(here.replica) == 20 and lists)
        go_on.set()
        assert {(await each).status for each in asking} == {503}
        assert lists == 1
        await until(lambda: here.replica.left)
