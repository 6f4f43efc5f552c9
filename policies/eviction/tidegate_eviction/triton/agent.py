"""Carries the core's commands out at Triton, and reports what became of them; it decides nothing."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from ..core.rules import Found
from ..core.steps import Command, Load, Recycle, Unload
from .control import Control, ControlError, RefusedError
from .index_watch import IndexWatch, heard
from .memory import MODEL, Memory, Reading, Source
from .reports import Reports, found_in, growth
from .repository import UNSEEN, RepositoryError, with_versions

PATIENCE_SECONDS = 20.0
"""Seconds after which the index is asked, too, what became of a load that has no answer yet."""
CALL_SECONDS = 10.0
FAST_SECONDS, SLOW_SECONDS = 0.2, 5.0
"""Seconds between two readings of memory: while something is loaded or unloaded, and else."""
METRICS_SECONDS = 1.0
"""The same while something is unloaded, where readings are Triton's metrics: more is never new."""
SETTLE_SECONDS = 2.5
"""Triton's own metrics show a load this much later."""
BLIND_SECONDS = 30.0
"""Without a reading for so long, memory cannot be read."""
AGAIN_SECONDS = 2.0
ASK_SECONDS = 10.0
"""Seconds between two tries to write that Triton is to be restarted."""
INDEX_SECONDS = 10.0
"""Seconds between two looks at the index; what two of them lack has vanished."""
SURE_SECONDS = 1.0
"""Seconds after which an unload shows that a predecessor had just ordered."""
Result = TypeVar("Result")
log = logging.getLogger(__name__)


class Agent:
    """Holds the connection to Triton, and everything that is under way there."""

    def __init__(
        self,
        control: Control,
        memory: Memory,
        override: Callable[[str, tuple[int, ...]], str | None],
        recycle: Path,
        reports: Reports,
    ) -> None:
        self._control = control
        self._memory = memory
        self._override = override
        """The configuration that has a load load these versions; blocks, raises RepositoryError and OSError."""
        self._recycle = recycle
        self._reports = reports
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._watch = IndexWatch(control)
        self._asking: asyncio.Task[None] | None = None
        """Asks again for Triton to be restarted, where that could not be written."""
        self._one_after_another = asyncio.Lock()
        self._read_now = asyncio.Event()
        self._server = ""
        self.is_up = False
        """Whether there is a connection, and everything is known that has to be."""

    # --- the connection
    async def follow(self) -> None:
        """Hold the connection for ever: what Triton has is reported when it is there, and its end when it ends."""
        why = ""
        while True:
            await self._control.connect()
            try:
                await self._memory.prepare()
                reading = await self._first_reading()
                found = await self._found()
            except ControlError as error:
                if why != str(error):
                    why = str(error)
                    log.error("Triton is there, but cannot be controlled: %s", why)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self.is_up, why = True, ""
            self._reports.memory_read(reading)  # whether there are readings, before anything is done
            self._reports.triton_back(found)
            self._reports.memory_read(reading)  # and what there is now
            reader = asyncio.create_task(self._read_memory())
            lost = asyncio.create_task(self._control.lost())
            looker = asyncio.create_task(self._compare())
            try:
                await asyncio.wait({reader, lost, looker}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.is_up = False
                ending = [reader, lost, looker, *self._tasks.values()]
                if self._asking is not None:  # this Triton has ended without it, or by it
                    ending.append(self._asking)
                    self._asking = None
                self._tasks.clear()
                for task in ending:
                    task.cancel()
            if looker.done() and not looker.cancelled():
                looker.result()
            if not lost.done():
                reader.result()  # a defect ends the policy: another one starts with what Triton says
            # At once: what the core says from now on waits for the next Triton.
            self._reports.triton_lost("its connection broke" if lost.done() else "it was started anew")
            await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        """Let everything be; what Triton does, it goes on doing."""
        await _ended([*self._tasks.values(), *([] if self._asking is None else [self._asking])])
        await self._control.close()

    async def _found(self) -> Found:
        """Return what Triton has, once an unload that was ordered just before would show."""
        index = await self._control.index()
        if index.having("READY") - {MODEL}:
            await asyncio.sleep(SURE_SECONDS)
            index = await self._control.index()
        try:
            served = await self._control.served()
        except RefusedError as error:  # built without statistics
            log.warning("models whose folder has gone are not found: %s", error)
            served = {}
        return found_in(index, served)

    async def _is_served(self, model: str) -> bool:
        """Tell whether Triton serves a model, as far as is known."""
        try:
            return model in await self._control.served()
        except ControlError:
            return True

    async def _compare(self) -> None:
        """Compare what is thought to be READY with the index, for ever, and report what two looks lack."""
        before: frozenset[str] = frozenset()
        while True:
            await asyncio.sleep(INDEX_SECONDS)
            thought = self._reports.resident()
            if (index := await self._watch.index()) is None:
                continue
            lacking = thought - index.having("READY") - index.having("LOADING")
            if lacking - index.models.keys():
                try:
                    lacking -= (await self._control.served()).keys()
                except ControlError:
                    continue
            if vanished := lacking & before & self._reports.resident():
                self._reports.vanished(vanished)
            before = lacking

    # --- commands
    def carry_out(self, commands: Iterable[Command]) -> None:
        """Begin to carry commands out, in this order."""
        for command in commands:
            if isinstance(command, Recycle):
                if not self._ask_for_restart(command):
                    self._asking = asyncio.create_task(self._ask_again(command))
                continue
            task = asyncio.create_task(self._work(command), name=f"{type(command).__name__} {command.model}")
            self._tasks[command.number] = task
            task.add_done_callback(partial(self._done, command.number))

    def _done(self, number: int, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(number) is task:
            del self._tasks[number]

    async def _work(self, command: Load | Unload) -> None:
        try:
            await (self._load(command) if isinstance(command, Load) else self._unload(command))
        except Exception as defect:  # the core waits for an end all the same
            log.exception("the policy has a defect")
            why = f"the policy has a defect, which is in its log: {defect!r}"
            if isinstance(command, Load):
                self._reports.load_ended(command.number, why, None, ())
            else:
                self._reports.unload_ended(command.number, why)

    async def _load(self, command: Load) -> None:
        before = None if command.watch else await self._settled(command.alone)
        error = None
        if command.watch:
            error = await self._watch.load(command.model, None)
        else:
            try:
                override = await _in_thread(lambda: self._override(command.model, command.versions))
            except (RepositoryError, OSError) as wrong:
                self._reports.load_ended(command.number, str(wrong), None, ())
                return
            error = await self._issue(command.model, override or None)
            if error is None and override == UNSEEN:
                error = await self._choose_versions(command)
        if error is not None:
            self._reports.load_ended(command.number, error, None, ())
            return
        versions = await self._watch.versions(command.model)
        after = await self._settled(command.alone) if before is not None else None
        self._reports.load_ended(command.number, None, growth(before, after), versions)
        if after is not None:
            self._reports.memory_read(after)
        else:
            self._read_now.set()

    async def _issue(self, model: str, config: str | None) -> str | None:
        """Load a model; return None, or why it failed."""
        call = asyncio.create_task(self._control.load(model, None, config))
        call.add_done_callback(heard)
        try:
            await asyncio.wait({call}, timeout=PATIENCE_SECONDS)
            return await self._watch.load(model, call)
        finally:
            call.cancel()

    async def _choose_versions(self, command: Load) -> str | None:
        """Load a model again with just its versions, where only now Triton can tell its configuration."""
        if (await self._watch.versions(command.model)) == tuple(sorted(command.versions)):
            return None
        try:
            config = await self._control.config(command.model)
        except ControlError as error:
            return str(error)
        return await self._issue(command.model, with_versions(config, command.versions))

    async def _unload(self, command: Unload) -> None:
        said, told = "", set()
        if not command.watch:
            async with self._one_after_another:  # an ensemble goes before its parts
                for name in command.names:
                    try:
                        await self._control.unload(name, CALL_SECONDS)
                    except RefusedError as error:
                        said = str(error)
                        if not await self._is_served(name):
                            told.add(name)
                    except ControlError as error:
                        log.warning("nobody knows yet whether %s is unloaded, so the index is watched: %s", name, error)
                    else:
                        told.add(name)
        if (why := await self._watch.unloads(command.names, said, told)) is None:
            self._reports.unload_ended(command.number, None)
            self._read_now.set()
        else:
            self._reports.unload_ended(command.number, why)

    def _ask_for_restart(self, command: Recycle) -> bool:
        """Write the file that asks for it; False where that cannot be done now."""
        new = self._recycle.with_name(f".{self._recycle.name}.new")
        try:
            new.write_text(f"{command.reason}\n", "utf-8")
            new.replace(self._recycle)
        except OSError as error:
            log.error("%s cannot be written, so Triton is not restarted yet: %s", self._recycle, error)
            return False
        log.warning("Triton is asked to be restarted: %s", command.reason)
        return True

    async def _ask_again(self, command: Recycle) -> None:
        """Ask until it is written: no lease is given before Triton has ended."""
        await asyncio.sleep(AGAIN_SECONDS)
        while not self._ask_for_restart(command):
            await asyncio.sleep(ASK_SECONDS)

    # --- memory
    async def _read_memory(self) -> None:
        """Report readings, until one is of another Triton."""
        last = monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next_reading()):
                    await self._read_now.wait()
            self._read_now.clear()
            try:
                reading = await self._memory.read(_in_thread)
            except ControlError as error:
                if monotonic() - last > BLIND_SECONDS:
                    self._reports.memory_is_blind(str(error))
                continue
            last = monotonic()
            if reading.server != self._server:
                return
            self._reports.memory_read(reading)

    def _until_next_reading(self) -> float:
        if not self._reports.is_busy():
            return SLOW_SECONDS
        return METRICS_SECONDS if self._memory.last.source is Source.METRICS else FAST_SECONDS

    async def _first_reading(self) -> Reading:
        reading = await self._memory.read(_in_thread)
        self._server = reading.server
        return reading

    async def _settled(self, is_worth_it: bool) -> Reading | None:
        """Return a reading that shows all that has happened; None when there is none, or it is not worth its time."""
        if self._memory.last.source is Source.METRICS and not is_worth_it:
            return None
        try:
            reading = await self._memory.read(_in_thread)
            if reading.source is Source.METRICS:
                await asyncio.sleep(SETTLE_SECONDS)
                reading = await self._memory.read(_in_thread)
        except ControlError as error:
            log.warning("memory cannot be read: %s", error)
            return None
        return reading


async def _in_thread(work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def _ended(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks, and wait until they are gone."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
