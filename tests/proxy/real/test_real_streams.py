"""Streams of Triton's gRPC clients bring the same directly and through the proxy; futures and deadlines work."""

import asyncio
import queue
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest

from ..rigs.pytest_rigs import Front
from .test_real_clients import PICTURE, add_sub, plain, repeat, sides, tensor


def put(answers: "queue.Queue[Any]", result: Any, error: Any) -> None:
    answers.put((result, error))


def decoupled(each: Any, kit: Any) -> int:
    inputs = repeat(kit, [4, 5, -6, 7], delay=5)
    each.async_stream_infer("repeat", inputs, request_id="r", enable_empty_final_response=True)
    return 5


def sequences(each: Any, kit: Any) -> int:
    for number in range(6):
        data = tensor(kit, "INPUT", numpy.array([[number]], numpy.int32), "INT32")
        for sequence in (11, 12):
            each.async_stream_infer(
                "accumulate", [data], sequence_id=sequence, sequence_start=number == 0, sequence_end=number == 5
            )
    return 12


def mistakes(each: Any, kit: Any) -> int:
    each.async_stream_infer("add_sub", add_sub(kit)[:1])
    each.async_stream_infer("add_sub", add_sub(kit))
    return 2


@pytest.mark.parametrize("work", [decoupled, sequences, mistakes])
def test_streams_bring_the_same(front: Front, work: Callable[[Any, Any], int]) -> None:
    """`work` sends, and says how many answers are to come."""
    import tritonclient.grpc as client

    found = []
    for where, headers in sides(front, "grpc"):
        answers: queue.Queue[Any] = queue.Queue()
        with client.InferenceServerClient(where) as each:
            each.start_stream(partial(put, answers), headers=headers)
            got = [answers.get(timeout=10) for _ in range(work(each, client))]
            each.stop_stream()
        found.append(sorted(str(plain(result) if error is None else error) for result, error in got))
    assert found[0] == found[1]


def test_streams_of_the_asyncio_client_bring_the_same(front: Front) -> None:
    import tritonclient.grpc as kit
    import tritonclient.grpc.aio

    aio: Any = tritonclient.grpc.aio

    async def run(where: str, headers: dict[str, str]) -> list[Any]:
        async def requests() -> Any:
            for _ in range(3):
                yield {"model_name": "repeat", "inputs": repeat(kit, [1, 2])}

        async with aio.InferenceServerClient(where) as each:
            return [(plain(answer), error) async for answer, error in each.stream_infer(requests(), headers=headers)]

    direct, through = (asyncio.run(run(*side)) for side in sides(front, "grpc"))
    assert sorted(map(str, through)) == sorted(map(str, direct))  # of several requests


def test_futures_and_deadlines_work(front: Front) -> None:
    import tritonclient.grpc as client
    from tritonclient.utils import InferenceServerException

    for where, headers in sides(front, "grpc"):
        with client.InferenceServerClient(where) as each:
            answers: queue.Queue[Any] = queue.Queue()
            for number in range(40):
                inputs = add_sub(client)
                each.async_infer("add_sub", inputs, partial(put, answers), request_id=str(number), headers=headers)
            got = [answers.get(timeout=10) for _ in range(40)]
            assert all(error is None for _, error in got)
            assert {result.get_response().id for result, _ in got} == set(map(str, range(40)))
            large = [tensor(client, "INPUT", numpy.tile(PICTURE, 10), "FP32")]
            with pytest.raises(InferenceServerException, match=r"(?i)deadline"):
                each.infer("echo", large, client_timeout=0.001, headers=headers)
