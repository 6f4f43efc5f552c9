"""Triton's own HTTP clients, unmodified: asked directly and through the proxy, every call has the same result."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import tritonclient.http as client
import tritonclient.http.aio as aio_client
from tritonclient.utils import InferenceServerException

from ..rigs.pytest_rigs import Front
from ..rigs.tables import SERVER

Headers = dict[str, str]
Call = Callable[[Any, Headers], Any]
PICTURE = numpy.random.default_rng(7).random(3 * 224 * 224, numpy.float32)
WORDS = numpy.array(["a", "ü", "", "x" * 70_000], dtype=object)
THREE = numpy.arange(3, dtype=numpy.int32)


def tensor(name: str, data: Any, kind: str, binary: bool = True) -> Any:
    found = client.InferInput(name, list(data.shape), kind)
    found.set_data_from_numpy(data, binary_data=binary)
    return found


def add_sub(kind: str = "INT32", dtype: Any = numpy.int32, binary: bool = True) -> list[Any]:
    return [tensor(f"INPUT{n}", numpy.arange(16).astype(dtype) * (n + 1), kind, binary) for n in range(2)]


def wanted(name: str, binary: bool) -> list[Any]:
    return [client.InferRequestedOutput(name, binary_data=binary)]


def repeat(numbers: Sequence[int]) -> list[Any]:
    delays = numpy.zeros(len(numbers), numpy.uint32)
    return [tensor("IN", numpy.array(numbers, numpy.int32), "INT32"), tensor("DELAY", delays, "UINT32")]


def compressed(request: str | None, response: str | None) -> Call:
    def call(c: Any, h: Headers) -> Any:
        return c.infer(
            "echo",
            [tensor("INPUT", PICTURE, "FP32")],
            request_compression_algorithm=request,
            response_compression_algorithm=response,
            headers=h,
        )

    return call


ASKED: dict[str, Call] = {
    "live": lambda c, h: c.is_server_live(headers=h),
    "ready": lambda c, h: c.is_server_ready(headers=h),
    "model ready": lambda c, h: c.is_model_ready("add_sub", headers=h),
    "no such model ready": lambda c, h: c.is_model_ready("no_such_model", headers=h),
    "version ready": lambda c, h: c.is_model_ready("versions", "2", headers=h),
    "no such version ready": lambda c, h: c.is_model_ready("versions", "9", headers=h),
    "server metadata": lambda c, h: c.get_server_metadata(headers=h),
    "metadata": lambda c, h: c.get_model_metadata("add_sub", headers=h),
    "metadata of a version": lambda c, h: c.get_model_metadata("versions", "2", headers=h),
    "metadata of no version": lambda c, h: c.get_model_metadata("versions", "9", headers=h),
    "metadata with a query": lambda c, h: c.get_model_metadata("echo", headers=h, query_params={"a": ["b", "c"]}),
    "config": lambda c, h: c.get_model_config("accumulate", headers=h),
    "config of a version": lambda c, h: c.get_model_config("versions", "1", headers=h),
    "config of no version": lambda c, h: c.get_model_config("versions", "9", headers=h),
    "statistics of no version": lambda c, h: c.get_inference_statistics("versions", "9", headers=h),
}
INFERRED: dict[str, Call] = {
    "binary both ways": lambda c, h: c.infer("add_sub", add_sub(), headers=h),
    "JSON both ways": lambda c, h: c.infer(
        "add_sub", add_sub(binary=False), outputs=wanted("OUTPUT1", False), headers=h
    ),
    "JSON in, binary out": lambda c, h: c.infer(
        "add_sub", add_sub(binary=False), outputs=wanted("OUTPUT0", True), headers=h
    ),
    "binary in, JSON out": lambda c, h: c.infer("add_sub", add_sub(), outputs=wanted("OUTPUT0", False), headers=h),
    "one of each": lambda c, h: c.infer(
        "add_sub", [add_sub()[0], add_sub(binary=False)[1]], outputs=wanted("OUTPUT1", True), headers=h
    ),
    "an id": lambda c, h: c.infer("add_sub", add_sub(), request_id="seven", headers=h),
    "another type": lambda c, h: c.infer("add_sub_fp32", add_sub("FP32", numpy.float32), headers=h),
    "parameters": lambda c, h: c.infer("add_sub", add_sub(), parameters={"own": 7, "other": "x"}, headers=h),
    "a priority and a time": lambda c, h: c.infer("add_sub", add_sub(), priority=1, timeout=5_000_000, headers=h),
    "a query": lambda c, h: c.infer("add_sub", add_sub(), query_params={"a": 1}, headers=h),
    "600 KB": lambda c, h: c.infer("echo", [tensor("INPUT", PICTURE, "FP32")], headers=h),
    "600 KB as JSON": lambda c, h: c.infer(
        "echo", [tensor("INPUT", PICTURE, "FP32", False)], outputs=wanted("OUTPUT", False), headers=h
    ),
    "6 MB": lambda c, h: c.infer("echo", [tensor("INPUT", numpy.tile(PICTURE, 10), "FP32")], headers=h),
    "words": lambda c, h: c.infer("echo_bytes", [tensor("INPUT", WORDS, "BYTES")], headers=h),
    "words as JSON": lambda c, h: c.infer(
        "echo_bytes", [tensor("INPUT", WORDS, "BYTES", False)], outputs=wanted("OUTPUT", False), headers=h
    ),
    "nothing in a tensor": lambda c, h: c.infer("echo", [tensor("INPUT", PICTURE[:0], "FP32")], headers=h),
    "gzip": compressed("gzip", None),
    "deflate": compressed("deflate", None),
    "gzip back": compressed(None, "gzip"),
    "deflate back": compressed(None, "deflate"),
    "gzip both ways": compressed("gzip", "gzip"),
    "deflate there, gzip back": compressed("deflate", "gzip"),
    "a version": lambda c, h: c.infer("versions", [tensor("INPUT", THREE, "INT32")], model_version="1", headers=h),
    "the newest": lambda c, h: c.infer("versions", [tensor("INPUT", THREE, "INT32")], headers=h),
    "no such version": lambda c, h: c.infer("versions", add_sub(), model_version="9", headers=h),
    "too little": lambda c, h: c.infer("add_sub", add_sub()[:1], headers=h),
    "another shape": lambda c, h: c.infer(
        "add_sub", [tensor(f"INPUT{n}", THREE, "INT32") for n in range(2)], headers=h
    ),
    "another type than it has": lambda c, h: c.infer("add_sub", add_sub("FP32", numpy.float32), headers=h),
    "an output that is none": lambda c, h: c.infer("add_sub", add_sub(), outputs=wanted("X", True), headers=h),
    "what streams": lambda c, h: c.infer("repeat", repeat([1]), headers=h),
    "a sequence that never began": lambda c, h: c.infer(
        "accumulate", [tensor("INPUT", THREE[:1].reshape(1, 1), "INT32")], sequence_id=9999, headers=h
    ),
}
CALLS = {**ASKED, **{f"infer: {name}": call for name, call in INFERRED.items()}}


def in_turn(where: str, headers: Headers, calls: Sequence[Call]) -> list[Any]:
    with client.InferenceServerClient(where) as each:
        return [said(lambda call=call: call(each, headers)) for call in calls]  # type: ignore[misc]


def in_turn_later(where: str, headers: Headers, calls: Sequence[Call]) -> list[Any]:
    """The same with the client for asyncio."""

    async def run() -> list[Any]:
        aio: Any = aio_client
        async with aio.InferenceServerClient(where) as each:
            return [await said_later(call(each, headers)) for call in calls]

    return asyncio.run(run())


def said(call: Callable[[], Any]) -> Any:
    """What came of it, in a form that can be compared byte by byte."""
    try:
        return plain(call())
    except InferenceServerException as error:
        return "error", error.status(), error.message()


async def said_later(call: Any) -> Any:
    try:
        return plain(await call if inspect.isawaitable(call) else call)
    except InferenceServerException as error:
        return "error", error.status(), error.message()


def plain(found: Any) -> Any:
    if not hasattr(found, "get_response"):
        return found
    response = found.get_response()
    return response, {each["name"]: bytes_of(found.as_numpy(each["name"])) for each in response["outputs"]}


def bytes_of(array: Any) -> Any:
    return array.tolist() if array.dtype == object else array.tobytes()


WAYS = pytest.mark.parametrize("ask", [in_turn, in_turn_later], ids=["http", "http.aio"])


@WAYS
@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_the_same_result(front: Front, ask: Callable[..., Any], name: str) -> None:
    (direct,) = ask(front.triton.http, {}, [CALLS[name]])
    (through,) = ask(front.proxy.http, front.credential, [CALLS[name]])
    assert through == direct


@WAYS
@pytest.mark.parametrize("name", ["metadata", "config", "server metadata", "ready", "infer: gzip", "infer: a version"])
def test_a_client_can_name_the_server_in_its_url(front: Front, ask: Callable[..., Any], name: str) -> None:
    (direct,) = ask(front.triton.http, {}, [CALLS[name]])
    (through,) = ask(f"{front.proxy.http}/servers/{SERVER}", front.credential, [CALLS[name]])
    assert through == direct


@WAYS
def test_an_api_key_is_as_good_as_a_token(front: Front, ask: Callable[..., Any]) -> None:
    call = [INFERRED["binary both ways"]]
    direct = ask(front.triton.http, {}, call)
    for headers in ({"X-API-Key": front.key}, {"Authorization": f"Bearer {front.key}"}):
        assert ask(front.proxy.http, headers, call) == direct


@WAYS
def test_what_the_proxy_refuses_reads_well_in_the_client(front: Front, ask: Callable[..., Any]) -> None:
    unknown: Call = lambda c, h: c.infer("no_such_model", add_sub(), headers=h)  # noqa: E731
    nobody = ask(front.proxy.http, {}, [INFERRED["binary both ways"]])
    somebody = ask(front.proxy.http, front.credential, [unknown])
    (_, status, message), (_, other_status, other_message) = nobody[0], somebody[0]
    assert (status, message.split(":")[0]) == ("401", "Send `Authorization")
    assert (other_status, other_message) == ("404", "There is no model no_such_model, or none that you may know of.")


def step(number: int, sequence: int | str) -> Call:
    data = numpy.array([[number]], numpy.int32)
    return lambda c, h: c.infer(
        "accumulate",
        [tensor("INPUT", data, "INT32")],
        sequence_id=sequence,
        sequence_start=number == 1,
        sequence_end=number == 4,
        headers=h,
    )


@WAYS
def test_sequences_have_the_same_answers(front: Front, ask: Callable[..., Any]) -> None:
    steps = [step(number, sequence) for number in range(1, 5) for sequence in (41, 42)]
    direct = ask(front.triton.http, {}, steps)
    through = ask(front.proxy.http, front.credential, steps)
    assert through == direct
    sums = [numpy.frombuffer(outputs["OUTPUT"], numpy.int32)[0] for _, outputs in through]
    assert sums == [1, 1, 3, 3, 6, 6, 10, 10]


def test_futures_have_the_same_results(front: Front) -> None:
    found = []
    for where, headers in ((front.triton.http, {}), (front.proxy.http, front.credential)):
        with client.InferenceServerClient(where, concurrency=8) as each:
            waiting = [
                each.async_infer("add_sub", add_sub(), request_id=str(number), headers=headers) for number in range(40)
            ]
            found.append([plain(future.get_result()) for future in waiting])
    assert found[0] == found[1]


def test_many_at_once_have_the_same_results(front: Front) -> None:
    async def run(where: str, headers: Headers) -> list[Any]:
        aio: Any = aio_client
        async with aio.InferenceServerClient(where) as each:
            return list(await asyncio.gather(*(said_later(call(each, headers)) for call in INFERRED.values())))

    assert asyncio.run(run(front.proxy.http, front.credential)) == asyncio.run(run(front.triton.http, {}))


@WAYS
def test_statistics_count_each_call_once(front: Front, ask: Callable[..., Any]) -> None:
    """Of what is asked in between, direct and through the proxy, and of nothing else."""

    def statistics(where: str, headers: Headers, model: str) -> Any:
        (found,) = ask(where, headers, [lambda c, h: c.get_inference_statistics(model, headers=h)])
        return found

    def both(model: str) -> Any:
        direct = statistics(front.triton.http, {}, model)
        assert statistics(front.proxy.http, front.credential, model) == direct
        return direct

    before = both("add_sub")["model_stats"][0]
    assert len(both("")["model_stats"]) == 8  # seven models, one of which has two versions
    calls = [INFERRED["binary both ways"]] * 5
    ask(front.proxy.http, front.credential, calls)
    after = both("add_sub")["model_stats"][0]
    assert after["inference_count"] == before["inference_count"] + 5
    assert set(after) == set(before)
