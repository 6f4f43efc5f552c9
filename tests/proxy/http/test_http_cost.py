"""The cost of a call in bytecode instructions, which does not depend on the machine or its load."""

import asyncio
import json
import math
import statistics
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock, call

import pytest
import tidegate_proxy
from tidegate_proxy.batching import SHORT, BatchingTransport
from tidegate_proxy.http.connection import ClientConnection
from tidegate_proxy.telemetry.records import CallLog
from tidegate_proxy.upstream.connection import Connection

from .running_proxy import BODY, ENVELOPE, PATH, request, served
from .upstream import head

pytestmark = pytest.mark.anyio
PROXY = str(Path(tidegate_proxy.__file__).parent)
CALLS = 20
CLIENT = {
    "Content_Type": "application/json", "Accept": "*/*", "User_Agent": "a",
    "traceparent": f"00-{'a' * 32}-{'b' * 16}-00",
}  # fmt: skip
ANSWER = head(b"content-type: application/json", b"content-length: 8") + b'{"ok":1}'


def wire() -> Mock:
    return Mock(spec=asyncio.Transport, is_closing=lambda: False, get_write_buffer_size=lambda: 0)


async def come(protocol: Any, data: bytes) -> None:
    protocol.get_buffer(-1)[: len(data)] = data
    protocol.buffer_updated(len(data))
    await asyncio.sleep(0)  # it writes at the end of the turn


@pytest.mark.parametrize(("path", "body", "most"), [(PATH, BODY, 1845), ("/predict", ENVELOPE % BODY, 2000)])
async def test_a_call_with_everything_cached_takes_at_most_this_many_instructions(
    tmp_path: Path, path: str, body: bytes, most: int
) -> None:
    """`make bench-proxy` measures their time. Raise the numbers only with its results in the commit."""
    counts: list[int] = []

    def count(frame: FrameType, event: str, _: object) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(PROXY):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counts[-1] += event == "opcode"
        return count

    async with served(tmp_path) as here:
        here.proxy.shared.call_log = CallLog(math.inf)  # Otherwise a busy machine logs more calls.
        await here.ask(request(path, body))  # the proxy caches the caller and its grant
        (replica,) = here.pool.replicas
        caller, front, behind = ClientConnection(here.proxy.http), wire(), wire()
        caller.connection_made(front)
        here.proxy.http.connections.discard(caller)
        idle = Connection(None, replica)  # type: ignore[arg-type]
        idle.connection_made(behind)
        replica._idle = [idle]
        data = request(path, body, **CLIENT)
        for number in range(2 * CALLS):
            idle.idle_since = time.monotonic()
            counts.append(0)
            sys.settrace(count if number >= CALLS else None)
            await come(caller, data)
            await come(idle, ANSWER)
            sys.settrace(None)
            assert front.write.call_args.args[0].endswith(b'{"ok":1}')
            assert json.loads(behind.write.call_args.args[0].partition(b"\r\n\r\n")[2]) == json.loads(BODY)
        replica._idle.clear()
    assert statistics.median(counts[CALLS:]) <= most  # a turn of the loop can also do other work


async def test_short_writes_of_one_turn_go_out_together_and_before_anything_else() -> None:
    behind, long = wire(), b"x" * SHORT
    batching: Any = BatchingTransport(behind)
    batching.write(b"a")
    batching.write(b"b")
    assert not behind.write.called
    await asyncio.sleep(0)
    for data in (b"c", long, b"d"):
        batching.write(data)
    batching.close()
    assert behind.mock_calls == [call.write(b"ab"), call.write(b"c" + long), call.write(b"d"), call.close()]
