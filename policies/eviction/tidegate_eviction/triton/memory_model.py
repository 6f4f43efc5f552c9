"""A model for Triton's Python backend that reads Triton's memory. The policy loads it from its source text.

It runs in Triton's container, because a MIG slice is only visible there. It creates no CUDA context, and imports
nothing of this package.
"""

import ctypes
import json
import os
from typing import Any

import numpy

NVML = "libnvidia-ml.so.1"
GPU_DEVICE = "/dev/nvidiactl"  # A container with any GPU has this file.
PAGE = os.sysconf("SC_PAGE_SIZE")


class NvmlMemory(ctypes.Structure):
    """`nvmlMemory_t`, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def nvml(name: str = NVML) -> Any:
    """Return the initialised library. None: there is no library or no driver."""
    try:
        library = ctypes.CDLL(name)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def devices(library: Any) -> list[Any]:
    """Return the MIG slices and whole GPUs of this container."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found: list[Any] = []
    for number in range(count.value):
        gpu = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(gpu)) != 0:
            continue
        mode, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        status = library.nvmlDeviceGetMigMode(gpu, ctypes.byref(mode), ctypes.byref(pending))
        if status != 0 or mode.value == 0:  # A GPU without MIG returns "not supported".
            found.append(gpu)
            continue
        library.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most))
        for place in range(most.value):
            part = ctypes.c_void_p()
            if library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, ctypes.c_uint(place), ctypes.byref(part)) == 0:
                found.append(part)
    return found


def gpu_memory(library: Any) -> int | None:
    """Return the bytes in use on all GPUs. None: no GPU reports any."""
    used = []
    for device in devices(library) if library is not None else []:
        memory = NvmlMemory()
        if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
            used.append(memory.used)
    return sum(used) if used else None


def own_memory(server: int) -> int:
    """Return the bytes that a process and its descendants use, without files and shared memory."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:  # It has just ended.
                continue
    family = {server}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    pages = 0
    for each in family:
        try:
            with open(f"/proc/{each}/statm", "rb") as statm:
                resident, shared = statm.read().split()[1:3]
        except OSError:
            continue
        pages += int(resident) - int(shared)
    return pages * PAGE


def started(process: int) -> str:
    """Return an identifier of one start of a process: its id and its start, in ticks of the machine."""
    with open(f"/proc/{process}/stat", "rb") as stat:
        return f"{process}:{int(stat.read().rpartition(b')')[2].split()[19])}"


class TritonPythonModel:
    """The class that Triton's Python backend requires."""

    def initialize(self, args: dict[str, str]) -> None:
        self._program = json.loads(args["model_config"])["parameters"]["program"]["string_value"]
        self._nvml = nvml()
        self._server = os.getppid()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer() for _ in requests]

    def _answer(self) -> Any:
        import triton_python_backend_utils as triton  # Only Triton's container has it.

        reading = {
            "program": self._program,
            "server": started(self._server),
            "gpu": gpu_memory(self._nvml),
            # The processes' memory does not include the memory of models on a GPU.
            "process": None if os.path.exists(GPU_DEVICE) else own_memory(self._server),
        }
        text = json.dumps(reading).encode()
        return triton.InferenceResponse([triton.Tensor("READING", numpy.array([text], dtype=numpy.object_))])
