"""Watches Triton's index: what became of loads and unloads, also of those whose call has no answer."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from time import monotonic
from typing import Any

from .control import ModelIndex, RefusedError, ServerCallError, TritonControl

NOTHING_SECONDS = 60.0
"""Seconds after which a load without an answer, of which the index says nothing, has failed."""
UNLOAD_SECONDS = 350.0
"""Seconds that an unload may take: requests in flight end first (SageMaker's figure)."""
IGNORED_SECONDS = 20.0
"""Seconds after which a model that is still ready was not unloaded."""
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.03, 1.0
"""Seconds between two looks at the index, at first and at last."""
LONGER = 1.07
"""Each pause is so much longer than the one before: what has ended is seen a fifteenth of its time later at most."""
log = logging.getLogger(__name__)


def heard(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a task that may not be awaited any more, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


class IndexWatcher:
    """Reads the index once at a time, for all loads and unloads that are watched."""

    def __init__(self, control: TritonControl) -> None:
        self._control = control
        self._looking: asyncio.Task[ModelIndex] | None = None
        self._look_seconds = 0.0

    async def load(self, model: str, call: "asyncio.Task[None] | None") -> str | None:
        """Return how a load ended: None, or why it failed.

        `call` is the call that ordered it, None where there is none here. Without its answer the index decides.
        """
        quiet_since = monotonic()
        failed = 0
        pause = FIRST_LOOK_SECONDS
        while True:
            if call is not None and call.done():
                try:
                    call.result()
                except RefusedError as error:
                    return str(error)
                except ServerCallError as error:
                    log.warning("it is not known whether %s was loaded, so the index is watched: %s", model, error)
                    call, quiet_since = None, monotonic()
                else:
                    return None
            if (index := await self.index()) is not None:
                if index.in_state(model, "LOADING"):
                    quiet_since, failed = monotonic(), 0
                elif index.in_state(model, "READY"):
                    return None
                elif why := index.why_not(model):
                    failed += 1
                    # While the call is under way it may be what an earlier load left.
                    if failed > 2 and call is None:
                        return why
                if monotonic() - quiet_since > (NOTHING_SECONDS if call is None else 10 * NOTHING_SECONDS):
                    return index.why_not(model) or "Triton gave no answer, and its index does not show the load"
            if call is not None:
                await asyncio.wait({call}, timeout=pause)
            else:
                await asyncio.sleep(pause)
            pause = self._longer(pause)

    async def unloads(self, names: Sequence[str], refused: str = "", told: Collection[str] = ()) -> str | None:
        """Return how an unload of these ended: None, or why it did not come to its end.

        `refused` is Triton's error, if it refused the call; `told` are the models whose call it accepted, or that it
        does not serve. The index does not name a model without a folder: it is unloaded only if it is in `told`.
        """
        begun = monotonic()
        pause = FIRST_LOOK_SECONDS
        while True:
            if (index := await self.index()) is not None:
                left = [
                    name
                    for name in names
                    if not index.is_unloaded(name) or (name not in index.models and name not in told)
                ]
                if not left:
                    return None
                seconds = monotonic() - begun
                ready = [name for name in left if index.in_state(name, "READY") or name not in index.models]
                if seconds > UNLOAD_SECONDS or (ready and (refused or seconds > IGNORED_SECONDS)):
                    return refused or f"{', '.join(ready or left)} is not unloaded after {seconds:.0f} s"
            await asyncio.sleep(pause)
            pause = self._longer(pause)

    async def index(self) -> ModelIndex | None:
        """Return the index as it is now; None when Triton does not answer. Calls at the same time share one answer."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(heard)
        try:
            return await asyncio.shield(self._looking)
        except ServerCallError as error:
            log.debug("the index cannot be had: %s", error)
            return None

    async def _look(self) -> ModelIndex:
        begun = monotonic()
        try:
            return await self._control.index()
        finally:
            self._look_seconds = monotonic() - begun

    def _longer(self, pause: float) -> float:
        """Return the seconds until the next look: looks take a tenth of the time at most."""
        return min(max(pause * LONGER, 10 * self._look_seconds), LONGEST_LOOK_SECONDS)

    async def versions(self, model: str) -> tuple[int, ...]:
        """Return the versions of a model that are ready now; none when Triton does not answer."""
        try:
            return (await self._look()).in_state(model, "READY")  # not what was asked before the load ended
        except ServerCallError:
            return ()
