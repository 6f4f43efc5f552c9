"""Makes glibc's malloc return freed memory to the system."""

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # Of mallopt (malloc.h).


def keep_no_freed_memory(*, tls: bool) -> None:
    """Return large buffers to the system when they are freed. By default glibc learns to keep them, in pieces. With
    `tls`, each connection has a buffer of 256 KiB."""
    with suppress(OSError, AttributeError):  # another system
        libc = _libc()
        for parameter, value in ((_M_MMAP_THRESHOLD, 1 << 17 if tls else 1 << 20), (_M_TRIM_THRESHOLD, 16 << 20)):
            libc.mallopt(parameter, value)


def give_freed_memory_back() -> None:
    """Return free memory between used memory to the system. Many buffers of many callers leave such gaps."""
    with suppress(OSError, AttributeError):
        _libc().malloc_trim(0)


def resident_bytes() -> int:
    """Return the resident memory of the process, or 0 if it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL("libc.so.6")
