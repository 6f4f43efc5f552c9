"""Readings of memory: from the driver, else from Triton's metrics, else from its processes."""

import asyncio
import http.client
import json
from typing import Any

import pytest
from tidegate_eviction.server import MemoryReading
from tidegate_eviction.triton.control import LostError, RefusedError, TritonControl
from tidegate_eviction.triton.memory import METRICS_TRIES, PROGRAM_ID, MemoryReader, MemorySource

METRICS = """\
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 42949672960
nv_gpu_memory_total_bytes{gpu_uuid="GPU-2"} 1000
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 7000000000
nv_gpu_memory_used_bytes{gpu_uuid="GPU-2"} 10
# HELP nv_inference_count Number of inferences
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 3
"""


class Asked(TritonControl):
    """A Triton that says one thing."""

    def __init__(self, text: bytes | None) -> None:
        super().__init__("nowhere:1", "")
        self.said = text
        self.loads: list[str] = []

    async def load(self, model: str, *_: Any, **__: Any) -> None:
        self.loads.append(model)
        if self.said is None:
            raise RefusedError("unable to find backend library for backend 'python'")

    async def text(self, *_: Any) -> bytes:
        if self.said is None or not self.loads:
            raise RefusedError("unknown model")
        return self.said


def reading(said: object, metrics: str | Exception = "") -> MemoryReading:
    def fetch(_: str) -> str:
        if isinstance(metrics, Exception):
            raise metrics
        return metrics

    memory = MemoryReader(Asked(None if said is None else json.dumps(said).encode()), "http://nowhere", fetch)

    async def run() -> MemoryReading:
        await memory.prepare()
        return await memory.read()

    return asyncio.run(run())


def said(gpu: dict[str, Any] | None) -> dict[str, Any]:
    return {"program": PROGRAM_ID, "server": "7:1", "gpu": gpu, "process": 77}


IN_USE = (7_000_000_010, 42_949_673_960)


@pytest.mark.parametrize(
    ("answer", "metrics", "read"),
    [
        (said({"used": 5, "total": 9, "slices": True}), METRICS, MemoryReading(MemorySource.NVML, 5, 9, "7:1")),
        (said(None), METRICS, MemoryReading(MemorySource.METRICS, *IN_USE, "7:1")),
        (None, METRICS, MemoryReading(MemorySource.METRICS, *IN_USE)),
        (said(None), "nv_inference_count 3\n", MemoryReading(MemorySource.PROCESS, 77, None, "7:1")),
        (None, "", MemoryReading(MemorySource.NONE)),
    ],
)
def test_the_driver_is_believed_first_then_metrics_then_processes(
    answer: object, metrics: str, read: MemoryReading
) -> None:
    assert reading(answer, metrics) == read


@pytest.mark.parametrize(
    "metrics", [OSError("refused"), http.client.BadStatusLine("x"), 'nv_gpu_memory_used_bytes{gpu="1"} lots']
)
def test_metrics_that_do_not_answer_or_are_none_are_no_zero(metrics: str | Exception) -> None:
    with pytest.raises(LostError, match="cannot be read"):
        reading(None, metrics)


def test_a_first_reading_waits_for_metrics_only_so_often_and_goes_on_blind_until_triton_is_started_anew() -> None:
    answers: list[str] = []

    def fetch(_: str) -> str:
        if not answers:
            raise OSError("refused")
        return answers[0]

    async def run() -> None:
        memory = MemoryReader(Asked(json.dumps(said(None)).encode()), "http://nowhere", fetch)
        for _ in range(METRICS_TRIES - 1):
            await memory.prepare()
            with pytest.raises(LostError):
                await memory.read()
        await memory.prepare()
        for _ in range(2):
            assert await memory.read() == MemoryReading(MemorySource.NONE, None, None, "7:1")
        answers.append(METRICS)
        await memory.prepare()
        assert (await memory.read()).source is MemorySource.METRICS

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [[], 5, "text", {}, {"program": PROGRAM_ID, "server": "7:1"}])
def test_an_answer_that_is_no_reading_is_refused(wrong: object) -> None:
    with pytest.raises(RefusedError, match="is no reading"):
        reading(wrong)


def test_metrics_without_a_gpu_are_asked_once_only() -> None:
    asked = []

    def fetch(url: str) -> str:
        asked.append(url)
        return ""

    async def run() -> None:
        memory = MemoryReader(Asked(json.dumps(said(None)).encode()), "http://nowhere", fetch)
        await memory.prepare()
        for _ in range(3):
            await memory.read()

    asyncio.run(run())
    assert len(asked) == 1


def test_a_reader_of_a_predecessor_is_used_on_and_one_of_another_version_replaced() -> None:
    async def loads(program: str) -> list[str]:
        control = Asked(json.dumps(said(None) | {"program": program}).encode())
        control.loads.append("by the predecessor")
        await MemoryReader(control, None).prepare()
        return control.loads[1:]

    assert asyncio.run(loads(PROGRAM_ID)) == []
    assert asyncio.run(loads("older")) == ["tidegate_memory"]


def test_a_driver_that_falls_silent_is_not_replaced_by_another_number() -> None:
    control = Asked(json.dumps(said({"used": 5, "total": 9, "slices": True})).encode())

    async def run() -> None:
        memory = MemoryReader(control, "http://nowhere", lambda _: METRICS)
        await memory.prepare()
        assert (await memory.read()).used_bytes == 5
        control.said = json.dumps(said(None)).encode()
        with pytest.raises(RefusedError, match="read from nvml, which tells nothing now"):
            await memory.read()
        await memory.prepare()  # another Triton, another source
        assert (await memory.read()).source is MemorySource.METRICS

    asyncio.run(run())
