"""The model that reads memory inside Triton's container: with a stand-in for NVIDIA's library, and real processes."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs.nvml import library

GIB = 1 << 30


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    backend = ModuleType("triton_python_backend_utils")
    backend.Tensor = lambda name, array: (name, array)  # type: ignore[attr-defined]
    backend.InferenceResponse = lambda tensors: SimpleNamespace(tensors=tensors)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    yield importlib.import_module("tidegate_eviction.triton.memory_model")
    sys.modules.pop("tidegate_eviction.triton.memory_model")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Path]:
    """A driver that says it has these GPUs, with so many bytes in use on each device."""
    with not_run("THE STAND-IN FOR NVML"):
        made = library(tmp_path)

    def saying(gpus: str, used: int) -> Path:
        # The C library reads what putenv has set.
        monkeypatch.setenv("NVML_GPUS", gpus)
        monkeypatch.setenv("NVML_USED", str(used))
        return made

    return saying


@pytest.mark.parametrize(
    ("gpus", "devices", "slices"),
    [("whole", 1, False), ("old", 1, False), ("1", 1, True), ("3", 3, True), ("whole 2", 3, True), ("0", 0, False)],
)
def test_it_reads_whole_gpus_and_slices(
    model: Any, driver: Callable[[str, int], Path], gpus: str, devices: int, slices: bool
) -> None:
    loaded = model.nvml(str(driver(gpus, 5 * GIB)))
    found = [is_slice for is_slice, _ in model.devices(loaded)]
    assert (len(found), any(found)) == (devices, slices)
    expected = {"used": devices * 5 * GIB, "total": devices * 40 * GIB, "slices": slices} if devices else None
    assert model.gpu_memory(loaded) == expected


def test_without_a_driver_it_has_no_gpu(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.nvml(str(tmp_path / "libnvidia-ml.so.1")) is None
    monkeypatch.delenv("NVML_GPUS", raising=False)
    with not_run("THE STAND-IN FOR NVML"):
        assert model.nvml(str(library(tmp_path))) is None
    assert model.gpu_memory(None) is None


def test_it_counts_what_a_process_and_its_descendants_hold(model: Any) -> None:
    """A grandchild holds the memory; what pytest itself takes meanwhile does not count."""

    def taken(held: int) -> int:
        inner = f"kept = bytearray(b'x') * {held}; print('held', flush=True); input()"
        outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
        with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            found: int = model.own_memory(process.pid)
            process.communicate(b"\n")
        return found

    held = 50 << 20
    assert 0.9 * held < taken(held) - taken(0) < 1.2 * held


def test_two_starts_of_a_program_differ(model: Any) -> None:
    seen = set()
    for _ in range(2):
        with subprocess.Popen(["sleep", "60"]) as process:
            seen.add(model.started(process.pid).partition(":")[2])
            time.sleep(0.03)
            process.kill()
    assert len(seen) == 2


def test_it_answers_with_a_reading(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "NVML", "/nowhere/libnvidia-ml.so.1")
    instance = model.TritonPythonModel()
    config = {"parameters": {"program": {"string_value": "7"}}}
    instance.initialize({"model_config": json.dumps(config)})
    ((name, array),) = instance.execute([object()])[0].tensors
    reading = json.loads(array[0])
    assert name == "READING"
    assert (reading["program"], reading["server"].partition(":")[0]) == ("7", str(os.getppid()))
    assert reading["process"] > 0
