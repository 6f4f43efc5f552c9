"""Work that several callers wait for is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, KeysView
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _Work(Generic[Result]):
    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiters: set[asyncio.Future[Result]] = set()

    def fail(self, error: Exception) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def give(self, result: Result) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(result)


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
        waiter: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        work.waiters.add(waiter)
        try:
            return await waiter
        finally:
            work.waiters.discard(waiter)
            if not (work.waiters or self._outlives):
                self._end(key, work)

    def fail(self, error: Exception) -> None:
        """Cancel all work under way, and raise `error` in its callers."""
        for key, work in list(self._under_way.items()):
            work.fail(error)
            self._end(key, work)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = [work.task for work in self._under_way.values() if work.task is not None]
        for work in self._under_way.values():
            for waiter in work.waiters:
                waiter.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, key: Key, work: _Work[Result], start: Callable[[], Coroutine[Any, Any, Result]]) -> None:
        try:
            found = await start()
        except Exception as error:
            work.fail(error)
        else:
            work.give(found)
        finally:
            self._end(key, work)

    def _end(self, key: Key, work: _Work[Result]) -> None:
        if self._under_way.get(key) is work:
            del self._under_way[key]
            if work.task is not None and work.task is not asyncio.current_task():
                work.task.cancel()
