"""A real Triton, asked directly and through the proxy by unmodified clients: nobody can tell the difference."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy
import pytest
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio_client
from google.protobuf.message import Message
from tritonclient.utils import InferenceServerException

from lab.local_plane.proxy import Proxy, write_tables
from lab.local_plane.proxy import proxy as run_proxy
from lab.local_plane.triton import Triton

from ..rigs.issuer import issuer
from ..rigs.perf_analyzer import perf_analyzer
from ..rigs.repository import MODELS
from ..rigs.tables import GROUP, access_table, routing_table

Headers = dict[str, str]


@pytest.fixture(scope="module")
def through(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the real Triton, and a caller's token."""
    root = tmp_path_factory.mktemp("through")
    names = [model.name for model in MODELS]
    with issuer() as provider:
        table = routing_table(real_triton.http_port, real_triton.grpc_port, names)
        write_tables(root, table, access_table([provider]))
        with run_proxy(root) as proxy:
            yield proxy, provider.token("me", [GROUP])


@pytest.fixture(scope="module")
def both(real_triton: Triton, through: tuple[Proxy, str]) -> Iterator[list[tuple[Any, Headers]]]:
    proxy, token = through
    clients = [client.InferenceServerClient(url) for url in (real_triton.grpc, proxy.grpc)]
    yield list(zip(clients, ({}, {"authorization": f"Bearer {token}"}), strict=True))
    for each in clients:
        each.close()


def tensor(name: str, data: Any, kind: str) -> Any:
    found = client.InferInput(name, list(data.shape), kind)
    found.set_data_from_numpy(data)
    return found


def add_sub(kind: str = "INT32", dtype: Any = numpy.int32) -> list[Any]:
    return [tensor(f"INPUT{n}", numpy.arange(16).astype(dtype) * (n + 1), kind) for n in range(2)]


IMAGE = numpy.random.default_rng(7).random(3 * 224 * 224, numpy.float32)
WORDS = numpy.array(["a", "ü", "", "x" * 70_000], dtype=object)
CALLS: dict[str, Callable[[Any, Headers], Any]] = {
    "live": lambda c, h: c.is_server_live(headers=h),
    "ready": lambda c, h: c.is_server_ready(headers=h),
    "model ready": lambda c, h: c.is_model_ready("add_sub", headers=h),
    "no such version ready": lambda c, h: c.is_model_ready("versions", "9", headers=h),
    "server metadata": lambda c, h: c.get_server_metadata(headers=h),
    "metadata": lambda c, h: c.get_model_metadata("add_sub", headers=h),
    "metadata of a version": lambda c, h: c.get_model_metadata("versions", "2", headers=h),
    "metadata as JSON": lambda c, h: c.get_model_metadata("echo", headers=h, as_json=True),
    "config": lambda c, h: c.get_model_config("accumulate", headers=h),
    "config of no version": lambda c, h: c.get_model_config("versions", "9", headers=h),
    "infer": lambda c, h: c.infer("add_sub", add_sub(), headers=h),
    "infer with an id": lambda c, h: c.infer("add_sub", add_sub(), request_id="seven", headers=h),
    "infer another type": lambda c, h: c.infer("add_sub_fp32", add_sub("FP32", numpy.float32), headers=h),
    "infer with asked outputs": lambda c, h: c.infer(
        "add_sub", add_sub(), outputs=[client.InferRequestedOutput("OUTPUT1")], headers=h
    ),
    "infer 600 KB": lambda c, h: c.infer("echo", [tensor("INPUT", IMAGE, "FP32")], headers=h),
    "infer 6 MB": lambda c, h: c.infer("echo", [tensor("INPUT", numpy.tile(IMAGE, 10), "FP32")], headers=h),
    "infer words": lambda c, h: c.infer("echo_bytes", [tensor("INPUT", WORDS, "BYTES")], headers=h),
    "infer with gzip": lambda c, h: c.infer("add_sub", add_sub(), compression_algorithm="gzip", headers=h),
    "infer with deflate": lambda c, h: c.infer("add_sub", add_sub(), compression_algorithm="deflate", headers=h),
    "infer with parameters": lambda c, h: c.infer("add_sub", add_sub(), parameters={"own": 7, "other": "x"}, headers=h),
    "infer a version": lambda c, h: c.infer(
        "versions", [tensor("INPUT", numpy.arange(3, dtype=numpy.int32), "INT32")], model_version="1", headers=h
    ),
    "infer the newest": lambda c, h: c.infer(
        "versions", [tensor("INPUT", numpy.arange(3, dtype=numpy.int32), "INT32")], headers=h
    ),
    "infer no such version": lambda c, h: c.infer("versions", add_sub(), model_version="9", headers=h),
    "infer too little": lambda c, h: c.infer("add_sub", add_sub()[:1], headers=h),
    "infer another shape": lambda c, h: c.infer(
        "add_sub", [tensor(f"INPUT{n}", numpy.arange(3, dtype=numpy.int32), "INT32") for n in range(2)], headers=h
    ),
    "infer what streams": lambda c, h: c.infer("repeat", repeat([1]), headers=h),
}


def put(answers: "queue.Queue[Any]", result: Any, error: Any) -> None:
    answers.put((result, error))


def repeat(numbers: list[int], delay: int = 5) -> list[Any]:
    return [
        tensor("IN", numpy.array(numbers, numpy.int32), "INT32"),
        tensor("DELAY", numpy.array([delay] * len(numbers), numpy.uint32), "UINT32"),
    ]


def said(call: Callable[[], Any]) -> Any:
    """What came of it, in a form that can be compared byte by byte."""
    try:
        return plain(call())
    except InferenceServerException as error:
        return "error", str(error.status()), error.message()


def plain(found: Any) -> Any:
    if hasattr(found, "get_response"):
        found = found.get_response()
    return found.SerializeToString(deterministic=True) if isinstance(found, Message) else found


@pytest.mark.parametrize("name", CALLS)
def test_every_call_has_the_same_answer(both: list[tuple[Any, Headers]], name: str) -> None:
    direct, through = (said(lambda pair=pair: CALLS[name](*pair)) for pair in both)  # type: ignore[misc]
    assert through == direct


def test_statistics_have_the_same_models(both: list[tuple[Any, Headers]]) -> None:
    for model in ("add_sub", ""):
        stats = [each.get_inference_statistics(model, headers=headers).model_stats for each, headers in both]
        direct, through = ([(stat.name, stat.version) for stat in found] for found in stats)
        assert through == direct


def test_futures_and_deadlines_work(both: list[tuple[Any, Headers]]) -> None:
    for each, headers in both:
        answers: queue.Queue[Any] = queue.Queue()
        for number in range(40):
            each.async_infer("add_sub", add_sub(), partial(put, answers), request_id=str(number), headers=headers)
        got = [answers.get(timeout=10) for _ in range(40)]
        assert all(error is None for _, error in got)
        assert {result.get_response().id for result, _ in got} == set(map(str, range(40)))
        with pytest.raises(InferenceServerException, match=r"(?i)deadline"):
            each.infer("echo", [tensor("INPUT", numpy.tile(IMAGE, 10), "FP32")], client_timeout=0.001, headers=headers)


def streamed(each: Any, headers: Headers, work: Callable[[Any], int]) -> list[Any]:
    """What a stream brings; `work` sends, and says how many answers are to come."""
    answers: queue.Queue[Any] = queue.Queue()
    each.start_stream(partial(put, answers), headers=headers)
    try:
        number = work(each)
        found = [answers.get(timeout=10) for _ in range(number)]
    finally:
        each.stop_stream()
    return [plain(result) if error is None else str(error) for result, error in found]


def decoupled(each: Any) -> int:
    each.async_stream_infer("repeat", repeat([4, 5, -6, 7]), request_id="r", enable_empty_final_response=True)
    return 5


def sequences(each: Any) -> int:
    for number in range(6):
        data = tensor("INPUT", numpy.array([[number]], numpy.int32), "INT32")
        for sequence in (11, 12):
            each.async_stream_infer(
                "accumulate", [data], sequence_id=sequence, sequence_start=number == 0, sequence_end=number == 5
            )
    return 12


def mistakes(each: Any) -> int:
    each.async_stream_infer("add_sub", add_sub()[:1])
    each.async_stream_infer("add_sub", add_sub())
    return 2


@pytest.mark.parametrize("work", [decoupled, sequences, mistakes])
def test_streams_bring_the_same(both: list[tuple[Any, Headers]], work: Callable[[Any], int]) -> None:
    direct, through = (streamed(*pair, work) for pair in both)
    assert sorted(map(str, through)) == sorted(map(str, direct))


def test_sequences_without_a_stream_bring_the_same(both: list[tuple[Any, Headers]]) -> None:
    found: list[list[Any]] = []
    for each, headers in both:
        found.append([])
        for number in range(4):
            data = tensor("INPUT", numpy.array([[number]], numpy.int32), "INT32")
            result = each.infer(
                "accumulate",
                [data],
                sequence_id=21,
                sequence_start=number == 0,
                sequence_end=number == 3,
                headers=headers,
            )
            found[-1].append(int(result.as_numpy("OUTPUT")[0][0]))
    assert found[0] == found[1] == [0, 1, 3, 6]


def test_the_asyncio_client_works_alone_and_as_a_stream(real_triton: Triton, through: tuple[Proxy, str]) -> None:
    proxy, token = through

    async def run(url: str, headers: Headers) -> list[Any]:
        aio: Any = aio_client
        async with aio.InferenceServerClient(url) as each:
            answers = await asyncio.gather(*(each.infer("add_sub", add_sub(), headers=headers) for _ in range(20)))

            async def requests() -> Any:
                for _ in range(3):
                    yield {"model_name": "repeat", "inputs": repeat([1, 2])}

            stream = [answer async for answer in each.stream_infer(requests(), headers=headers)]
            return [plain(answer) for answer in answers] + [(plain(answer), error) for answer, error in stream]

    direct = asyncio.run(run(real_triton.grpc, {}))
    assert asyncio.run(run(proxy.grpc, {"authorization": f"Bearer {token}"})) == direct


def test_control_of_models_and_memory_is_out_of_reach(both: list[tuple[Any, Headers]]) -> None:
    each, headers = both[1]
    calls: list[Any] = [
        lambda: each.get_model_repository_index(headers=headers),
        lambda: each.load_model("add_sub", headers=headers),
        lambda: each.unload_model("add_sub", headers=headers),
        lambda: each.get_system_shared_memory_status(headers=headers),
        lambda: each.register_system_shared_memory("a", "/a", 1, headers=headers),
        lambda: each.unregister_system_shared_memory(headers=headers),
        lambda: each.get_cuda_shared_memory_status(headers=headers),
        lambda: each.update_trace_settings(settings={"trace_level": ["OFF"]}, headers=headers),
        lambda: each.get_log_settings(headers=headers),
    ]
    for call in calls:
        with pytest.raises(InferenceServerException) as error:
            call()
        assert error.value.status() == str(grpc.StatusCode.UNIMPLEMENTED)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("add_sub", ()),
        ("add_sub", ("--streaming",)),
        ("accumulate", ("--sequence-length", "5")),
        ("accumulate", ("--streaming", "--sequence-length", "5")),
        ("echo", ("--shape", "INPUT:150528")),
    ],
)
def test_perf_analyzer_completes(
    through: tuple[Proxy, str], tmp_path: Path, model: str, options: tuple[str, ...]
) -> None:
    proxy, token = through
    measured = perf_analyzer(tmp_path, "grpc", proxy.grpc, model, *options, token=token)
    assert measured.per_second > 0
