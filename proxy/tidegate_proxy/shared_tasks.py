"""Work that several callers wait for is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, KeysView
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _Work(Generic[Result]):
    __slots__ = ("result", "task", "waiters")

    def __init__(self) -> None:
        self.result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        # Else asyncio reports a failure whose callers have all left.
        self.result.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.task: asyncio.Task[None] | None = None
        self.waiters = 0


class SharedTasks(Generic[Key, Result]):
    """A task goes on when one of its callers leaves; with the last it is cancelled, unless it `outlives` them."""

    def __init__(self, *, outlives: bool = False) -> None:
        self._outlives = outlives
        self._under_way: dict[Key, _Work[Result]] = {}

    @property
    def under_way(self) -> KeysView[Key]:
        """The keys of the work under way."""
        return self._under_way.keys()

    async def join(self, key: Key, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return what the work of this key returns, or raise what it raises; `start` begins it where it is needed."""
        work = self._under_way.get(key)
        if work is None:
            work = self._under_way[key] = _Work()
            work.task = asyncio.get_running_loop().create_task(self._do(key, work, start))
        work.waiters += 1
        try:
            return await asyncio.shield(work.result)
        finally:
            work.waiters -= 1
            if not (work.waiters or self._outlives or work.result.done()):
                work.result.cancel()
                self._end(key, work)

    def fail(self, error: Exception) -> None:
        """Cancel all work under way, and raise `error` in its callers."""
        for key, work in list(self._under_way.items()):
            if not work.result.done():
                work.result.set_exception(error)
            self._end(key, work)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [work.task for work in self._under_way.values() if work.task is not None]
        for work in self._under_way.values():
            work.result.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, key: Key, work: _Work[Result], start: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        try:
            found = await start()
        except Exception as error:
            if not work.result.done():
                work.result.set_exception(error)
        else:
            if not work.result.done():
                work.result.set_result(found)
        finally:
            self._end(key, work)

    def _end(self, key: Key, work: _Work[Result]) -> None:
        if self._under_way.get(key) is work:
            del self._under_way[key]
            if work.task is not None and work.task is not asyncio.current_task():
                work.task.cancel()
