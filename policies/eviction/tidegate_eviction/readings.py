"""How much memory a GPU, a slice of one, or processes use: read in the container that has them.

Programs that the policy sends to another container have this in their text (`serving.files.program`): nothing is
imported that Python does not bring.
"""

import ctypes
import os
from typing import Any

NVML = "libnvidia-ml.so.1"
PAGE = os.sysconf("SC_PAGE_SIZE")


class NvmlMemory(ctypes.Structure):
    """`nvmlMemory_t`, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def nvml(name: str = NVML) -> Any:
    """Return the library, initialised; None where there is none, or no driver."""
    try:
        library = ctypes.CDLL(name)
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


def devices(library: Any) -> list[tuple[bool, Any]]:
    """Return the MIG slices and whole GPUs that this container may use, each with whether it is a slice."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return []
    found: list[tuple[bool, Any]] = []
    for number in range(count.value):
        gpu = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(gpu)) != 0:
            continue
        mode, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        said = library.nvmlDeviceGetMigMode(gpu, ctypes.byref(mode), ctypes.byref(pending))
        if said != 0 or mode.value == 0:  # a GPU that knows no MIG says that it is not supported
            found.append((False, gpu))
            continue
        library.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most))
        for place in range(most.value):
            part = ctypes.c_void_p()
            if library.nvmlDeviceGetMigDeviceHandleByIndex(gpu, ctypes.c_uint(place), ctypes.byref(part)) == 0:
                found.append((True, part))
    return found


def gpu_memory(library: Any) -> dict[str, Any] | None:
    """Return the bytes used and there altogether; None where no GPU tells."""
    used = total = 0
    slices = False
    told = False
    for is_slice, device in devices(library) if library is not None else []:
        memory = NvmlMemory()
        if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
            used, total, slices, told = used + memory.used, total + memory.total, slices or is_slice, True
    return {"used": used, "total": total, "slices": slices} if told else None


def own_memory(server: int, proc: str = "/proc") -> int:
    """Return the bytes that a process and its descendants hold in memory: without files and what they share."""
    parents = {}
    for entry in os.listdir(proc):
        if entry.isdecimal():
            try:
                with open(f"{proc}/{entry}/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:  # it has just ended
                continue
    family = {server}
    while more := {each for each, parent in parents.items() if parent in family} - family:
        family |= more
    pages = 0
    for each in family:
        try:
            with open(f"{proc}/{each}/statm", "rb") as statm:
                resident, shared = statm.read().split()[1:3]
        except OSError:
            continue
        pages += int(resident) - int(shared)
    return pages * PAGE


def started(process: int, proc: str = "/proc") -> str:
    """Return what tells one start of a process from another: its id and its start, in ticks of the machine."""
    with open(f"{proc}/{process}/stat", "rb") as stat:
        return f"{process}:{int(stat.read().rpartition(b')')[2].split()[19])}"
