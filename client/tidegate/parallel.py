"""Runs work on several files at a time."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int], None]  # Called with the number of further bytes, by several threads at once.

HASHING: Final = max(1, min(8, os.cpu_count() or 1))  # threads for work on the CPU
TRANSFERS: Final = 8  # threads for work that waits for a network or a disk


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item], threads: int = TRANSFERS) -> list[Result]:
    """Return the results in the order of the items. Raises the first failure, and then starts no further work."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # also on Ctrl-C
            pool.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    return [future.result() for future in futures]
