"""Requests one behind another, and answers of replicas in every form: none is taken for another."""

import asyncio
from pathlib import Path

import pytest

from .house import KEY, MODEL, PATH, access_table, house, request, until
from .test_http_faults import METADATA, write
from .upstream import Asked, Upstream, answer, upstream

pytestmark = pytest.mark.anyio
PREDICT = b'{"inference_server_name":"vision","model_name":"resnet","payload":%b}'


async def echo(_: Upstream, writer: asyncio.StreamWriter, asked: Asked) -> None:
    await answer(writer, asked.body)


# --- requests
async def test_a_call_waits_for_the_answer_of_a_request_that_the_application_still_works_on(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow_metadata(_: Upstream, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.line.startswith("GET /v2 "):
            await go_on.wait()
            await answer(writer, b'{"name":"triton"}')
        else:
            await answer(writer)

    async with upstream(slow_metadata) as replica, house(tmp_path, replica) as here, here.caller() as caller:
        await caller.send(request("/v2", method="GET"))
        await until(lambda: replica.asked)
        await caller.send(request())
        await until(lambda: any(each._queue for each in here.proxy.http.connections))
        go_on.set()
        assert [(await caller.reply()).body for _ in range(2)] == [b'{"name":"triton"}', b'{"ok":1}']


@pytest.mark.parametrize("first", [request(), METADATA, request("/healthz", method="GET", key=None)])
async def test_predict_is_answered_in_its_turn_too(tmp_path: Path, first: bytes) -> None:
    async with upstream(echo) as replica, house(tmp_path, replica) as here, here.caller() as caller:
        predict = request("/predict", PREDICT % b'{"turn":2}')
        await caller.send(first + predict + request(body=b"third") + predict)
        replies = [await caller.reply() for _ in range(4)]
        assert [reply.status for reply in replies] == [200] * 4
        assert [reply.body for reply in replies[1:]] == [b'{"turn":2}', b"third", b'{"turn":2}']


@pytest.mark.parametrize("path", [PATH, "/predict"])
async def test_a_body_that_grows_too_long_behind_another_request_is_refused_in_its_turn(
    tmp_path: Path, path: str
) -> None:
    async def slow(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
        await asyncio.sleep(0.1)
        await answer(writer)

    chunks = b"".join(b"64\r\n%b\r\n" % bytes(100) for _ in range(3)) + b"0\r\n\r\n"
    async with upstream(slow) as replica, house(tmp_path, replica, body_limit_bytes=200) as here, here.caller() as one:
        await one.send(request() + request(path, b"", Transfer_Encoding="chunked") + chunks)
        assert [(await one.reply()).status for _ in range(2)] == [200, 413]
        assert len(replica.asked) == 1


async def test_a_body_that_looks_like_a_request_is_a_body(tmp_path: Path) -> None:
    inner = METADATA
    async with upstream(echo) as replica, house(tmp_path, replica) as here, here.caller() as caller:
        before = len(replica.asked)
        for _ in range(3):
            head, body = request(body=inner).split(b"\r\n\r\n", 1)
            await caller.send(head + b"\r\n\r\n")
            await asyncio.sleep(0.02)
            await caller.send(body)  # a whole request, where a body is due
            assert (await caller.reply()).body == inner
        assert {asked.line.split()[0] for asked in replica.asked[before:]} == {"POST"}


async def test_a_head_after_empty_lines_is_a_request(tmp_path: Path) -> None:
    async with upstream() as replica, house(tmp_path, replica) as here, here.caller() as caller:
        for before in (b"\r\n", b"", b"\r\n", b""):
            await caller.send(before)
            await asyncio.sleep(0.01)
            await caller.send(before + request())
            assert (await caller.reply()).status == 200


@pytest.mark.parametrize("data", [request(Connection="close"), request().replace(b"HTTP/1.1", b"HTTP/1.0")])
async def test_a_request_that_is_its_connections_last_ends_it(tmp_path: Path, data: bytes) -> None:
    async with upstream() as replica, house(tmp_path, replica) as here:
        async with here.caller() as caller:
            await caller.send(data)
            await caller.send(request())
            reply = await caller.reply()
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert await caller.ended()
        assert len(replica.asked) == 1


async def test_a_caller_who_is_known_counts_by_the_rules_keys_and_tables_of_now(tmp_path: Path) -> None:
    async with upstream() as replica, house(tmp_path, replica) as here, here.caller() as caller:

        async def status() -> int:
            await caller.send(request())
            return (await caller.reply()).status

        [routes, rules, keys] = here.proxy.config.watched
        table = (here.root / "routing" / "routing.json").read_text()
        key = (here.root / "api-keys" / "ci").read_text()
        assert await status() == 200
        nobody = access_table().model_copy(update={"rules": ()})
        for watched, name, bad, good, expected in (
            (
                rules,
                "access.json",
                nobody.model_dump_json(by_alias=True),
                access_table().model_dump_json(by_alias=True),
                404,
            ),
            (routes, "routing.json", '{"version":1,"environment":"test","servers":[],"models":[]}', table, 404),
        ):
            write(here, name, bad)
            await watched.look()
            assert [await status(), await status()] == [expected] * 2
            write(here, name, good)
            await watched.look()
            assert await status() == 200
        (here.root / "api-keys" / "ci").unlink()
        await keys.look()
        assert [await status(), await status()] == [401] * 2
        (here.root / "api-keys" / "ci").write_text(key)
        await keys.look()
        assert await status() == 200


async def test_the_answer_to_head_has_no_body_that_the_next_answer_would_follow(tmp_path: Path) -> None:
    async with upstream() as replica, house(tmp_path, replica) as here, here.caller() as caller:
        for _ in range(3):
            await caller.send(request(f"/v2/models/{MODEL}", method="HEAD"))
            head = await caller.head()
            assert head.startswith("HTTP/1.1 405 ")
            await caller.send(METADATA)
            assert (await caller.reply()).status == 200
        assert KEY not in head


# --- answers
def raw(*parts: bytes, pause: float = 0.02, end: bool = False) -> object:
    """Answer with these bytes, as they are."""

    async def act(_: Upstream, writer: asyncio.StreamWriter, __: Asked) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        if end:
            writer.close()

    return act


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines, b"", b""])


async def test_an_answer_in_pieces_or_whole_is_the_same(tmp_path: Path) -> None:
    start = head(b"Content-Length: 5")
    async with upstream() as replica, house(tmp_path, replica) as here:
        for pieces in (
            (start + b"whole",),
            (start, b"later"),
            (start + b"in", b"two"),
            (start[:30], start[30:] + b"heads"),
        ):
            for _ in range(3):
                replica.act = raw(*pieces)  # type: ignore[assignment]
                reply = await here.ask()
                assert (reply.status, reply.body) == (200, b"".join(pieces)[len(start) :])
        assert len(replica.writers) == 1, "all over one connection"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("lines", [(), (b"Content-Length: 7",)])
async def test_an_answer_without_a_body_is_whole(tmp_path: Path, status: bytes, lines: tuple[bytes, ...]) -> None:
    async with upstream(raw(head(*lines, status=status))) as replica, house(tmp_path, replica) as here:  # type: ignore[arg-type]
        async with here.caller() as caller:
            for _ in range(4):
                await caller.send(request())
                assert (await caller.head()).startswith(f"HTTP/1.1 {status[:3].decode()} ")
        assert len(replica.asked) == 4


async def test_no_answer_after_one_without_a_body_is_told_and_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    async with upstream(raw(head(status=b"204 No Content"))) as replica, house(tmp_path, replica) as here:  # type: ignore[arg-type]
        assert (await here.ask()).status == 204
        replica.act = raw(end=True)  # type: ignore[assignment]
        assert (await here.ask()).status == 502


async def test_interim_answers_are_passed_over(tmp_path: Path) -> None:
    interim, real = head(status=b"103 Early Hints"), head(b"Content-Length: 2") + b"ok"
    async with upstream() as replica, house(tmp_path, replica) as here:
        for pieces in ((interim + real,), (interim, real), (interim, interim + real), (real,)) * 2:
            replica.act = raw(*pieces)  # type: ignore[assignment]
            reply = await here.ask()
            assert (reply.status, reply.body) == (200, b"ok")


async def test_a_replica_that_says_close_is_not_asked_again_over_that_connection(tmp_path: Path) -> None:
    act = raw(head(b"Connection: close", b"Content-Length: 2") + b"ok")
    async with upstream(act) as replica, house(tmp_path, replica) as here:  # type: ignore[arg-type]
        for number in range(1, 4):
            assert (await here.ask()).body == b"ok"
            await until(lambda number=number: replica.left == number)


@pytest.mark.parametrize(
    "more", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsmu", head(b"Content-Length: 3") + b"two"]
)
async def test_more_than_the_answer_is_nobodys_answer(tmp_path: Path, more: bytes) -> None:
    """Not that of the next caller over the connection, nor of one who waits for a place."""
    ok = head(b"Content-Length: 2") + b"ok"
    async with upstream(raw(ok + more)) as replica, house(tmp_path, replica, concurrency=1) as here:  # type: ignore[arg-type]
        for _ in range(2):
            replies = await asyncio.gather(*(here.ask() for _ in range(4)))
            assert {(reply.status, reply.body) for reply in replies} == {(200, b"ok")}
        assert len(replica.asked) == 8


@pytest.mark.parametrize(
    "answered",
    [
        head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"5\r\nhello\r\n0\r\n\r\n",
        head(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"5\r\nhello\r\n0\r\n\r\n",
        head(b"Content-Length: 5", b"Content-Length: 4") + b"hello",
        head(b"Transfer-Encoding: gzip, chunked") + b"5\r\nhello\r\n0\r\n\r\n",
        head(b"Upgrade: h2c", b"Connection: Upgrade", status=b"101 Switching Protocols") + b"PRI",
    ],
)
async def test_an_answer_of_two_readings_is_none(
    tmp_path: Path, answered: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with upstream(raw(answered)) as replica, house(tmp_path, replica) as here:  # type: ignore[arg-type]
        for _ in range(2):
            reply = await here.ask()
            assert (reply.status, reply.problem) == (502, "upstream-failed")
    assert "Traceback" not in caplog.text


async def test_an_answer_before_the_request_is_whole_ends_both_connections(tmp_path: Path) -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head(b"Content-Length: 2") + b"no")

    server = await asyncio.start_server(at_once, "127.0.0.1", 0)
    async with server, house(tmp_path, server.sockets[0].getsockname()[1]) as here:
        for _ in range(3):
            async with here.caller() as caller:
                await caller.send(request(body=bytes(1000))[:-500])
                reply = await caller.reply()
                assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"no", "close")
