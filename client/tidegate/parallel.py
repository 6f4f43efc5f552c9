"""Several files at a time; the first failure ends the rest."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int], None]  # Told how many bytes more are done, by several threads at once.

HASHING: Final = max(1, min(8, os.cpu_count() or 1))  # threads for what a processor does
TRANSFERS: Final = 8  # threads for what waits for a network or a disk


def in_parallel(work: Callable[[Item], Result], items: Iterable[Item], threads: int = TRANSFERS) -> list[Result]:
    """Return the results in the order of the items; raises the first failure, after which no more work is begun."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # Ctrl-C comes here as well
            pool.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    return [future.result() for future in futures]
