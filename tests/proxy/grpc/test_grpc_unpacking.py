"""Messages that are unpacked: whoever waits meanwhile waits a moment, and they arrive whole."""

import asyncio
from collections import Counter
from pathlib import Path

import grpc
import pytest
from tidegate_proxy.grpc.messages import STEP, MessageReader

from .harness import infer_request, method, rig

SIZE = 60 << 20
CALLS = 2


async def count_turns(turns: list[int]) -> None:
    """Count the turns that the loop gives to everybody."""
    while True:
        await asyncio.sleep(0)
        turns[0] += 1


def test_large_messages_that_unfold_from_few_bytes_arrive_whole_and_hold_nobody_up_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, steps = [0], Counter[int]()
    whole = MessageReader.take

    def take(self: MessageReader, version: str | None) -> bytes | bytearray:
        steps[turns[0]] += 1
        return whole(self, version)

    monkeypatch.setattr(MessageReader, "take", take)
    with rig(tmp_path, body_limit_bytes=64 << 20, request_timeout_seconds=60) as door:
        counting = asyncio.run_coroutine_threadsafe(count_turns(turns), door.loop)
        # The answer is short: what is looked at is the way there.
        infer = method(door.channel(), "ModelInfer")
        large = infer_request("broken", bytes(SIZE))
        packed = grpc.Compression.Gzip
        calls = [infer.future(large, metadata=door.metadata(), compression=packed) for _ in range(CALLS)]
        assert {call.code() for call in calls} == {grpc.StatusCode.FAILED_PRECONDITION}
        counting.cancel()
        assert {len(message.raw_input_contents[0]) for _, message, _ in door.stubs[0].asked} == {SIZE}
    # Each unpacks a step (test_grpc_messages), and in one turn each call may have one, and the one of its head.
    assert steps.total() >= CALLS * SIZE // STEP
    assert max(steps.values()) <= 2 * CALLS
