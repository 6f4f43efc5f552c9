"""Every call of Triton's own unmodified clients has the same result directly and through the proxy.

`test_real_http` covers what their options for JSON, queries and compression send."""

import asyncio
import importlib
import inspect
import queue
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy
import pytest

from ..rigs.pytest_rigs import Front

Headers = dict[str, str]
Call = Callable[[Any, Headers, Any], Any]
"""Takes a client, headers, and the module with its tensor classes. Clients for asyncio return an awaitable."""
PICTURE = numpy.random.default_rng(7).random(3 * 224 * 224, numpy.float32)
WORDS = numpy.array(["a", "ü", "", "x" * 70_000], dtype=object)
THREE = numpy.arange(3, dtype=numpy.int32)
HTTP, GRPC = ("http", "http.aio"), ("grpc", "grpc.aio")


def tensor(kit: Any, name: str, data: Any, kind: str) -> Any:
    found = kit.InferInput(name, list(data.shape), kind)
    found.set_data_from_numpy(data)
    return found


def add_sub(kit: Any, kind: str = "INT32", dtype: Any = numpy.int32) -> list[Any]:
    return [tensor(kit, f"INPUT{n}", numpy.arange(16).astype(dtype) * (n + 1), kind) for n in range(2)]


def repeat(kit: Any, numbers: Sequence[int], delay: int = 0) -> list[Any]:
    delays = numpy.full(len(numbers), delay, numpy.uint32)
    return [tensor(kit, "IN", numpy.array(numbers, numpy.int32), "INT32"), tensor(kit, "DELAY", delays, "UINT32")]


def get(method: str, *given: Any) -> Call:
    return lambda c, h, _: getattr(c, method)(*given, headers=h)


def infer(model: str, inputs: Callable[[Any], list[Any]] = add_sub, **more: Any) -> Call:
    return lambda c, h, k: c.infer(model, inputs(k), headers=h, **more)


def three(k: Any) -> list[Any]:
    return [tensor(k, "INPUT", THREE, "INT32")]


CALLS: dict[str, Call] = {
    "live": get("is_server_live"),
    "ready": get("is_server_ready"),
    "model ready": get("is_model_ready", "add_sub"),
    "version ready": get("is_model_ready", "versions", "2"),
    "no such version ready": get("is_model_ready", "versions", "9"),
    "metadata": get("get_model_metadata", "add_sub"),
    "metadata of a version": get("get_model_metadata", "versions", "2"),
    "metadata of no version": get("get_model_metadata", "versions", "9"),
    "config": get("get_model_config", "accumulate"),
    "config of a version": get("get_model_config", "versions", "1"),
    "config of no version": get("get_model_config", "versions", "9"),
    "statistics of no version": get("get_inference_statistics", "versions", "9"),
    "infer": infer("add_sub"),
    "an id": infer("add_sub", request_id="seven"),
    "another type": infer("add_sub_fp32", lambda k: add_sub(k, "FP32", numpy.float32)),
    "parameters": infer("add_sub", parameters={"own": 7, "other": "x"}),
    "a priority and a time": infer("add_sub", priority=1, timeout=5_000_000),
    "requested outputs": lambda c, h, k: c.infer(
        "add_sub", add_sub(k), outputs=[k.InferRequestedOutput("OUTPUT1")], headers=h
    ),
    "600 KB": infer("echo", lambda k: [tensor(k, "INPUT", PICTURE, "FP32")]),
    "6 MB": infer("echo", lambda k: [tensor(k, "INPUT", numpy.tile(PICTURE, 10), "FP32")]),
    "words": infer("echo_bytes", lambda k: [tensor(k, "INPUT", WORDS, "BYTES")]),
    "nothing in a tensor": infer("echo", lambda k: [tensor(k, "INPUT", PICTURE[:0], "FP32")]),
    "a version": infer("versions", three, model_version="1"),
    "the newest": infer("versions", three),
    "no such version": infer("versions", model_version="9"),
    "too little": infer("add_sub", lambda k: add_sub(k)[:1]),
    "another shape": infer("add_sub", lambda k: [tensor(k, f"INPUT{n}", THREE, "INT32") for n in range(2)]),
    "another type than it has": infer("add_sub", lambda k: add_sub(k, "FP32", numpy.float32)),
    "what streams": infer("repeat", lambda k: repeat(k, [1])),
    "a sequence that never began": infer(
        "accumulate", lambda k: [tensor(k, "INPUT", THREE[:1].reshape(1, 1), "INT32")], sequence_id=9999
    ),
}


def ask(way: str, where: str, headers: Headers, *calls: Call) -> list[Any]:
    protocol, _, is_aio = way.partition(".")
    kit, client = importlib.import_module(f"tritonclient.{protocol}"), importlib.import_module(f"tritonclient.{way}")
    if not is_aio:
        with client.InferenceServerClient(where) as each:
            return [asyncio.run(outcome(call, each, headers, kit)) for call in calls]

    async def run() -> list[Any]:
        async with client.InferenceServerClient(where) as each:
            return [await outcome(call, each, headers, kit) for call in calls]

    return asyncio.run(run())


async def outcome(call: Call, each: Any, headers: Headers, kit: Any) -> Any:
    """Return a call's result in a form that can be compared byte by byte."""
    from tritonclient.utils import InferenceServerException

    try:
        found = call(each, headers, kit)
        return plain(await found if inspect.isawaitable(found) else found)
    except InferenceServerException as error:
        return "error", str(error.status()), error.message()


def plain(found: Any) -> Any:
    if not hasattr(found, "get_response"):
        return found.SerializeToString(deterministic=True) if hasattr(found, "SerializeToString") else found
    response = found.get_response()
    if hasattr(response, "SerializeToString"):
        return response.SerializeToString(deterministic=True)
    arrays = {each["name"]: found.as_numpy(each["name"]) for each in response["outputs"]}
    return response, {name: each.tolist() if each.dtype == object else each.tobytes() for name, each in arrays.items()}


def sides(front: Front, way: str) -> list[tuple[str, Headers]]:
    protocol = way.partition(".")[0]
    return [(getattr(front.triton, protocol), {}), (getattr(front.proxy, protocol), front.credential)]


WAYS = pytest.mark.parametrize("way", HTTP + GRPC)
OF_HTTP = pytest.mark.parametrize("way", HTTP)


@WAYS
def test_every_call_has_the_same_result(front: Front, way: str) -> None:
    direct, through = (dict(zip(CALLS, ask(way, *side, *CALLS.values()), strict=True)) for side in sides(front, way))
    for name in CALLS:
        assert through[name] == direct[name], name


@OF_HTTP
def test_refused_calls_have_readable_errors_in_the_client(front: Front, way: str) -> None:
    unauthenticated = ask(way, front.proxy.http, {}, CALLS["infer"])
    unknown = ask(way, front.proxy.http, front.credential, infer("no_such_model"))
    (_, status, message), (_, other_status, other_message) = unauthenticated[0], unknown[0]
    assert (status, message.split(":")[0]) == ("401", "Send `Authorization")
    assert (other_status, other_message) == ("404", "There is no model no_such_model, or you have no access to it.")


def step(number: int, sequence: int) -> Call:
    data = numpy.array([[number]], numpy.int32)
    ends = {"sequence_id": sequence, "sequence_start": number == 1, "sequence_end": number == 4}
    return lambda c, h, k: c.infer("accumulate", [tensor(k, "INPUT", data, "INT32")], headers=h, **ends)


@WAYS
def test_sequences_have_the_same_answers(front: Front, way: str) -> None:
    steps = [step(number, sequence) for number in range(1, 5) for sequence in (41, 42)]
    direct, through = (ask(way, *side, *steps) for side in sides(front, way))
    assert through == direct
    if way in HTTP:
        sums = [numpy.frombuffer(outputs["OUTPUT"], numpy.int32)[0] for _, outputs in through]
        assert sums == [1, 1, 3, 3, 6, 6, 10, 10]


# --- streams
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
    """`work` sends requests, and returns the number of responses to expect."""
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
    assert sorted(map(str, through)) == sorted(map(str, direct))  # responses to several requests, in any order


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
