"""Tasks that several callers share."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, KeysView
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _Work(Generic[Result]):
    task: asyncio.Task[Result]
    waiters: int = 0
    error: Exception | None = None  # Raised in its callers if it is cancelled.


class SharedTasks(Generic[Key, Result]):
    """Runs one task for all callers of a key. Its last caller cancels it by leaving, unless it `outlives` them."""

    def __init__(self, *, outlives: bool = False) -> None:
        self._outlives = outlives
        self._under_way: dict[Key, _Work[Result]] = {}

    @property
    def under_way(self) -> KeysView[Key]:
        return self._under_way.keys()

    async def join(self, key: Key, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the result of the task with this key, or raise its error. `start` starts it if there is none."""
        work = self._under_way.get(key)
        if work is None:
            work = self._under_way[key] = _Work(asyncio.get_running_loop().create_task(self._do(key, start)))
            work.task.add_done_callback(_retrieve)
        work.waiters += 1
        try:
            return await asyncio.shield(work.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if work.error is None or caller is None or caller.cancelling():
                raise
            raise work.error from None
        finally:
            work.waiters -= 1
            if not (work.waiters or self._outlives):
                self._end(key, work.task)

    def fail(self, error: Exception) -> None:
        """Cancel all tasks in progress, and raise `error` in their callers."""
        for key, work in list(self._under_way.items()):
            work.error = error
            self._end(key, work.task)

    async def close(self) -> None:
        tasks = [work.task for work in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, key: Key, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        try:
            return await start()
        finally:
            self._forget(key, asyncio.current_task())

    def _end(self, key: Key, task: asyncio.Task[Result]) -> None:
        self._forget(key, task)
        task.cancel()

    def _forget(self, key: Key, task: asyncio.Task[Any] | None) -> None:
        if (work := self._under_way.get(key)) is not None and work.task is task:
            del self._under_way[key]


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark a task's exception as retrieved, even if all of its callers have left, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
