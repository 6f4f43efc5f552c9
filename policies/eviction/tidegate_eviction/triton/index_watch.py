"""Watches Triton's index: what became of loads and unloads, also of those that nobody has an answer to."""

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
    """Take note of how a task ended that nobody may wait for any more."""
    if not task.cancelled():
        task.exception()


class IndexWatcher:
    """One look at a time, for everybody who watches."""

    def __init__(self, control: TritonControl) -> None:
        self._control = control
        self._looking: asyncio.Task[ModelIndex] | None = None
        self._look_seconds = 0.0

    async def load(self, model: str, call: "asyncio.Task[None] | None") -> str | None:
        """Return how a load ended: None, or why it failed.

        `call` is the one that asked for it, None where somebody else did. Without its answer the index tells.
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
                    log.warning("nobody knows yet whether %s was loaded, so the index is watched: %s", model, error)
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

        `refused` is what Triton said when it was asked, if it did not want to; `told` are those to which it said yes,
        or that it does not serve.
        Of a model without a folder the index says nothing: it is unloaded only if Triton was told so.
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
        """Return the index as it is now; None when Triton does not tell. Those who ask at once share one answer."""
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
        """Return how long to wait before the next look: looks take a tenth of Triton's time at most."""
        return min(max(pause * LONGER, 10 * self._look_seconds), LONGEST_LOOK_SECONDS)

    async def versions(self, model: str) -> tuple[int, ...]:
        """Return the versions of a model that are ready now; none when Triton does not tell."""
        try:
            return (await self._look()).in_state(model, "READY")  # not what was asked before the load ended
        except ServerCallError:
            return ()
