"""Work that many wait for is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Whoever asks for what is under way waits for that; it goes on when one of them leaves."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[Result]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._under_way

    async def join(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return what the work of this name finds, or raise what it raises."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(start())
            task.add_done_callback(lambda ended: self._landed(key, ended))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _landed(self, key: Hashable, task: asyncio.Task[Result]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # those who asked may all have left
