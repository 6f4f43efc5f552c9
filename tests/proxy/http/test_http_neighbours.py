import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tidegate_proxy.access.api_keys import new_key
from tidegate_proxy.concurrency import FIRST_BYTES, ConcurrencyLimiter

from ..rigs.tables import access_table, write_key
from .running_proxy import MODEL, Reply, RunningProxy, request, served, standing_still, until
from .upstream import answering, hang, only

pytestmark = pytest.mark.anyio
LINGERING = ("04", "05", "06")  # FIN_WAIT1, FIN_WAIT2, TIME_WAIT.


def lingering(peer: int) -> int:
    """Return the number of ports that closed connections to this one occupy."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{peer:04X}") and row[3] in LINGERING for row in rows)


async def test_disconnecting_callers_use_up_no_ports(here: RunningProxy) -> None:
    here.replica.act = hang
    before = lingering(here.replica.port)  # another process may have used this port a minute ago
    for number in range(20):
        async with here.caller() as caller:
            await caller.send(request())
            await until(lambda number=number: len(here.replica.requests) > number)
    await until(lambda: not here.proxy.shared.open_calls)
    # On a busy machine a health check may have closed its own connection occasionally.
    assert lingering(here.replica.port) - before < 10
    here.replica.act = None
    assert (await here.ask()).status == 200


@pytest.mark.parametrize("leaves", ["at once", "by its own deadline"])
async def test_a_caller_that_keeps_disconnecting_has_no_more_calls_at_a_replica_than_slots(
    tmp_path: Path, leaves: str
) -> None:
    path = "/v2/models/slow/infer"
    slow = request(path) if leaves == "at once" else request(path, Request_Timeout="5")
    access = access_table()
    both = access.rules[0].model_copy(update={"principals": ("ci", "eve")})
    access = access.model_copy(update={"rules": (both,)})
    async with served(tmp_path, only("/slow/", hang), models=(MODEL, "slow"), access=access) as here:
        here.proxy.shared.limiter = places = ConcurrencyLimiter(16, 3600.0)
        for number in range(1, 31):
            async with here.caller() as caller:
                await caller.send(slow)
                await until(lambda number=number: len(here.replica.requests) == min(number, 14), 3)
                if number <= 14 and leaves != "at once":
                    [call] = here.proxy.shared.open_calls
                    call.expire()  # as the sweep does in 5 s
                    assert (await caller.reply()).status == 504
        await until(lambda: not here.proxy.shared.open_calls)
        assert (places.in_flight, len(here.replica.requests)) == (0, 14), "one caller can have seven eighths"
        key = new_key()
        write_key(here.root, key, "eve")
        await here.proxy.config.watched[2].look()
        replies = await asyncio.gather(*(here.ask(request(key=key)) for _ in range(30)))
        assert {reply.status for reply in replies} == {200}, "others go on"


@pytest.fixture
def waiting(here: RunningProxy, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Return the reads that wait for their turn because much has arrived. The test runs them."""
    found: list[Callable[[], None]] = []
    monkeypatch.setattr(here.proxy.shared.bulk_reads, "add", lambda _, step: found.append(step))
    return found


async def with_turns(reply: Awaitable[Reply], waiting: list[Callable[[], None]]) -> Reply:
    replying = asyncio.ensure_future(reply)
    while not replying.done():
        if waiting:
            waiting.pop()()
        await asyncio.sleep(0.001)
    return await replying


async def test_large_bodies_of_several_callers_are_read_in_turn(
    here: RunningProxy, waiting: list[Callable[[], None]]
) -> None:
    await here.ask()  # authenticates the caller
    async with here.caller() as caller:
        sending = asyncio.ensure_future(caller.send(request(body=bytes(900_000))))
        await until(lambda: waiting)
        [link] = here.proxy.http.connections
        came = await standing_still(lambda: link._last.body.received)  # type: ignore[union-attr]
        assert (len(waiting), came < 900_000) == (1, True), "nothing more is read before its turn"
        assert (await here.ask()).status == 200, "others go on"
        assert (await with_turns(caller.reply(), waiting)).status == 200
        await sending


@pytest.mark.parametrize("size", [4_000, 60_000])
async def test_a_body_in_tiny_chunks_is_read_by_turns_with_others_however_few_bytes_come(
    here: RunningProxy, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(here.proxy.shared.long_work, "add", lambda _, step: waiting.append(step))
    await here.ask()  # authenticates the caller
    async with here.caller() as caller:
        await caller.send_apart(request(body=b"", Transfer_Encoding="chunked"))
        await caller.send_apart(b"1\r\n \r\n" * (size // 6))
        await until(lambda: waiting)
        [link] = here.proxy.http.connections
        came = await standing_still(lambda: link._last.body.received)  # type: ignore[union-attr]
        assert came < 3_000, "nothing more is read before its turn"
        await caller.send(b"0\r\n\r\n")
        monkeypatch.undo()
        waiting.pop()()
        assert (await caller.reply()).status == 200
        assert len(here.replica.requests[-1].body) == size // 6


async def test_little_of_a_long_head_is_read_before_its_turn(
    here: RunningProxy, waiting: list[Callable[[], None]]
) -> None:
    async with here.caller() as caller:
        await caller.send(request(Cookie="x" * 48_000))
        await until(lambda: waiting)
        [link] = here.proxy.http.connections
        assert await standing_still(lambda: link._head_bytes + len(link._rest)) <= FIRST_BYTES
        assert (await here.ask()).status == 200, "others go on"
        waiting.pop()()
        assert (await caller.reply()).status == 200


async def test_large_responses_are_read_in_turn(here: RunningProxy, waiting: list[Callable[[], None]]) -> None:
    here.replica.act = only(f"/{MODEL}/infer", answering(bytes(4_000_000)))
    async with here.caller() as caller:
        for _ in range(2):  # over the same connection to the replica, which must be left readable
            await caller.send(request())
            replying = asyncio.ensure_future(caller.reply())
            await until(lambda: waiting)
            assert await standing_still(lambda: len(waiting)) == 1, "nothing more is read before its turn"
            assert not replying.done()
            assert len((await with_turns(replying, waiting)).body) == 4_000_000
            waiting.clear()
