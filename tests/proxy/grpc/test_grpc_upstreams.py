"""Connections to a replica, shared by calls that begin at the same time."""

import asyncio
import socket
from typing import Any, cast

import pytest
from tidegate_proxy.grpc.upstreams import UpstreamConnection, UpstreamConnections


class Made:
    """A connection that has come about."""

    alive = has_room = True
    ends_idle = False


def test_who_comes_just_when_a_connection_has_come_about_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the end of the work and what is called after it: there a wait would never let the loop go on."""
    found: list[UpstreamConnection] = []
    looks = 0

    async def main() -> None:
        lines = UpstreamConnections(socket.AF_INET, ("127.0.0.1", 1), "a", None)
        take = lines.take

        def looked() -> UpstreamConnection | None:
            nonlocal looks
            looks += 1
            assert looks < 100, "it waits for what has ended, for ever"
            return take()

        def begin_another() -> None:
            with pytest.raises(StopIteration) as ended:
                lines.connect(1).send(None)
            found.append(ended.value.value)

        async def connect(_: float) -> UpstreamConnection:
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(begin_another)
            return cast(UpstreamConnection, Made())

        monkeypatch.setattr(lines, "take", looked)
        monkeypatch.setattr(lines, "_connect", connect)
        found.append(await lines.connect(1))

    asyncio.run(main())
    first, second = cast(list[Any], found)
    assert first is second


def test_a_connection_that_cannot_be_had_is_told_to_all_and_tried_anew_by_the_next() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
        lines = UpstreamConnections(socket.AF_INET, address, "a", None)
        for _ in range(2):
            ended = await asyncio.gather(*(lines.connect(1) for _ in range(3)), return_exceptions=True)
            assert [type(each) for each in ended] == [ConnectionRefusedError] * 3

    asyncio.run(main())
