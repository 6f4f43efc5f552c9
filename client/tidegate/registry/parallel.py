"""Several files at a time; the first failure ends the rest."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
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
    left = list(enumerate(items))
    each = iter(left)  # the threads take from it by turns
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def take() -> None:
        try:
            for number, item in each:
                go_on(stop)
                results[number] = work(item, stop)
        except BaseException as error:
            stop.set()
            failures.append(error)

    # A future for each item would take as long as a small file does.
    with ThreadPoolExecutor(threads) as pool:
        try:
            wait([pool.submit(take) for _ in range(min(threads, len(left)))])
        finally:  # Ctrl-C comes here as well
            stop.set()
    for error in failures:
        if not isinstance(error, StoppedError):
            raise error
    return [results[number] for number in range(len(left))]


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
