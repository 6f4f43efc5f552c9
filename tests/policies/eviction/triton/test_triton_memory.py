import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tidegate_eviction.triton import memory_model
from tidegate_eviction.triton.control import RefusedError, TritonControl
from tidegate_eviction.triton.memory import PROGRAM_ID, MemoryReader, MemoryReading, MemorySource

from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs.nvml import library

pytestmark = pytest.mark.anyio


class Control(TritonControl):
    def __init__(self, text: bytes | None) -> None:
        super().__init__("nowhere:1", "")
        self.report = text
        self.loads: list[str] = []

    async def load(self, model: str, *_: Any, **__: Any) -> None:
        self.loads.append(model)
        if self.report is None:
            raise RefusedError("unable to find backend library for backend 'python'")

    async def text(self, *_: Any) -> bytes:
        if self.report is None or not self.loads:
            raise RefusedError("unknown model")
        return self.report


def reading(result: object) -> MemoryReading:
    memory = MemoryReader(Control(None if result is None else json.dumps(result).encode()))

    async def run() -> MemoryReading:
        await memory.prepare()
        return await memory.read()

    return asyncio.run(run())


def report(gpu: int | None) -> dict[str, Any]:
    return {"program": PROGRAM_ID, "server": "7:1", "gpu": gpu, "process": 77}


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (report(5), MemoryReading(MemorySource.NVML, 5, "7:1")),
        (report(None), MemoryReading(MemorySource.PROCESS, 77, "7:1")),
        (report(None) | {"process": None}, MemoryReading(MemorySource.NONE, None, "7:1")),
        (None, MemoryReading(MemorySource.NONE)),
    ],
)
def test_the_driver_is_trusted_first_then_processes(answer: object, read: MemoryReading) -> None:
    assert reading(answer) == read


@pytest.mark.parametrize("wrong", [[], 5, "text", {}, {"program": PROGRAM_ID, "server": "7:1"}])
def test_an_answer_that_is_no_reading_is_refused(wrong: object) -> None:
    with pytest.raises(RefusedError, match="is not a reading"):
        reading(wrong)


def test_a_reader_of_a_predecessor_is_used_on_and_one_of_another_version_replaced() -> None:
    async def loads(program: str) -> list[str]:
        control = Control(json.dumps(report(None) | {"program": program}).encode())
        control.loads.append("by the predecessor")
        await MemoryReader(control).prepare()
        return control.loads[1:]

    assert asyncio.run(loads(PROGRAM_ID)) == []
    assert asyncio.run(loads("older")) == ["tidegate_memory"]


async def test_a_driver_that_falls_silent_is_not_replaced_by_another_number() -> None:
    control = Control(json.dumps(report(5)).encode())
    memory = MemoryReader(control)
    await memory.prepare()
    assert (await memory.read()).used_bytes == 5
    control.report = json.dumps(report(None)).encode()
    with pytest.raises(RefusedError, match="read from nvml, which returns nothing now"):
        await memory.read()
    await memory.prepare()  # Another Triton, another source.
    assert (await memory.read()).source is MemorySource.PROCESS


GIB = 1 << 30


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """A driver with these GPUs, and the bytes in use on each device."""
    with not_run("THE STAND-IN FOR NVML"):
        made = library(tmp_path)

    def devices_of(gpus: str, used: int) -> Path:
        # The C library reads variables that putenv has set.
        monkeypatch.setenv("NVML_GPUS", gpus)
        monkeypatch.setenv("NVML_USED", str(used))
        return made

    return devices_of


@pytest.mark.parametrize(("gpus", "devices"), [("whole", 1), ("old", 1), ("1", 1), ("3", 3), ("whole 2", 3), ("0", 0)])
def test_it_reads_whole_gpus_and_slices(driver: Callable[[str, int], Path], gpus: str, devices: int) -> None:
    loaded = memory_model.nvml(str(driver(gpus, 5 * GIB)))
    assert len(memory_model.devices(loaded)) == devices
    assert memory_model.gpu_memory(loaded) == (devices * 5 * GIB or None)


def test_without_a_driver_it_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_model.nvml(str(tmp_path / "libnvidia-ml.so.1")) is None
    monkeypatch.delenv("NVML_GPUS", raising=False)
    with not_run("THE STAND-IN FOR NVML"):
        assert memory_model.nvml(str(library(tmp_path))) is None
    assert memory_model.gpu_memory(None) is None


def test_memory_of_a_process_and_its_descendants_is_counted() -> None:
    """A grandchild holds the memory. The memory of pytest itself does not count."""

    def taken(held: int) -> int:
        inner = f"kept = bytearray(b'x') * {held}; print('held', flush=True); input()"
        outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
        with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            found: int = memory_model.own_memory(process.pid)
            process.communicate(b"\n")
        return found

    held = 50 << 20
    assert 0.9 * held < taken(held) - taken(0) < 1.2 * held


def test_two_starts_of_a_program_differ() -> None:
    seen = set()
    for _ in range(2):
        with subprocess.Popen(["sleep", "60"]) as process:
            seen.add(memory_model.started(process.pid).partition(":")[2])
            time.sleep(0.03)
            process.kill()
    assert len(seen) == 2


def test_it_answers_with_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = ModuleType("triton_python_backend_utils")
    backend.Tensor = lambda name, array: (name, array)  # type: ignore[attr-defined]
    backend.InferenceResponse = lambda tensors: SimpleNamespace(tensors=tensors)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    instance = memory_model.TritonPythonModel()
    config = {"parameters": {"program": {"string_value": "7"}}}
    instance.initialize({"model_config": json.dumps(config)})
    ((name, array),) = instance.execute([object()])[0].tensors
    reading = json.loads(array[0])
    assert name == "READING"
    assert (reading["program"], reading["server"].partition(":")[0]) == ("7", str(os.getppid()))
    assert reading["process"] > 0
    monkeypatch.setattr(memory_model, "GPU_DEVICE", "/dev/null")
    ((_, array),) = instance.execute([object()])[0].tensors
    assert json.loads(array[0])["process"] is None, "there is a GPU, but no driver reports its memory"
