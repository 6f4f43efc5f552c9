"""Several files at a time; the first failure ends the rest."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Stop = threading.Event
"""Is set when the others are to end, between two chunks."""
Progress = Callable[[int], None]
"""Is told how many bytes more are done."""

HASHING: Final = max(1, min(8, os.cpu_count() or 1))
TRANSFERS: Final = 8
"""Files at a time over the network: memory is this many chunks, whatever the sizes of the files."""


class StoppedError(Exception):
    """Ends the work on one item because of another; nobody sees it."""


def in_parallel(work: Callable[[Item, Stop], Result], items: Iterable[Item], threads: int = HASHING) -> list[Result]:
    """Return the results in the order of the items; raises the first failure, and lets nothing go on after it."""
    stop = Stop()
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item, stop) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # Ctrl-C comes here as well
            if any(not future.done() or future.exception() is not None for future in futures):
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
    failures = [error for future in futures if not future.cancelled() and (error := future.exception()) is not None]
    for error in failures:
        if not isinstance(error, StoppedError):
            raise error
    return [future.result() for future in futures]


def go_on(stop: Stop) -> None:
    """Raise StoppedError when the others are to end."""
    if stop.is_set():
        raise StoppedError


def one_at_a_time(progress: Progress | None) -> Progress | None:
    """Return who tells a progress of several threads, which need not know of threads."""
    if progress is None:
        return None
    lock = threading.Lock()

    def tell(count: int) -> None:
        with lock:
            progress(count)

    return tell
