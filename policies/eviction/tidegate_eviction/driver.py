"""Carries out the core's commands at a Triton, and reports their outcomes. It decides nothing."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tidegate_contracts.triton import MEMORY_MODEL

from .core.messages import Command, Load, Recycle, ServerInventory, Unload
from .files import write_whole
from .serving.service import EvictionService
from .staging.sources import RepositoryError
from .triton.control import IndexWatcher, ModelIndex, RefusedError, ServerCallError, TritonControl, retrieve
from .triton.memory import MemoryReader, MemoryReading

FAST_SECONDS, SLOW_SECONDS = 0.2, 5.0
"""Seconds between two readings of memory: during loads and unloads, and otherwise."""
log = logging.getLogger(__name__)


@dataclass(eq=False)
class TritonDriver:
    """Holds the connection to a Triton, and all work in progress there."""

    _control: TritonControl
    _memory: MemoryReader
    _recycle: Path
    _service: EvictionService
    is_up: bool = False  # Whether it is connected, and the models of Triton are known.

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        """Work in progress at this Triton: loads, unloads, and the request for a restart."""
        self._times = self._control.times
        self._watch = IndexWatcher(self._control)
        self._one_after_another = asyncio.Lock()
        self._read_now = asyncio.Event()
        self._server = ""

    # The connection

    async def follow(self) -> None:
        """Keep the connection: report the models of Triton when it starts, its memory, and its end."""
        why = ""
        while True:
            await self._control.connect()
            try:
                await self._memory.prepare()
                reading = await self._memory.read()
                self._server = reading.server
                found = await self._found()
            except ServerCallError as error:
                if why != str(error):
                    why = str(error)
                    log.error("Triton runs, but cannot be controlled: %s", why)
                await asyncio.sleep(self._times.retry_seconds)
                continue
            self.is_up, why = True, ""
            self._service.memory_read(reading)  # First whether there are readings,
            self._service.server_back(found)
            self._service.memory_read(reading)  # then the memory in use.
            reader = asyncio.create_task(self._read_memory())
            lost = asyncio.create_task(self._control.lost())
            looker = asyncio.create_task(self._compare())
            try:
                await asyncio.wait({reader, lost, looker}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.is_up = False
                ending = [reader, lost, looker, *self._tasks]
                for task in ending:
                    task.cancel()
            if looker.done() and not looker.cancelled():
                looker.result()
            if not lost.done():
                reader.result()  # A defect ends the policy. Its successor starts with Triton's state.
            # Immediately: the core's next commands are for the next Triton.
            self._service.server_lost("its connection broke" if lost.done() else "it was restarted")
            await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        """Stop watching and close the connection. Triton continues its work."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._control.close()

    async def _found(self) -> ServerInventory:
        """Return Triton's models, late enough to show an unload that was just ordered."""
        index = await self._control.index()
        if index.having("READY") - {MEMORY_MODEL}:
            await asyncio.sleep(self._times.settled_seconds)
            index = await self._control.index()
        try:
            served = await self._control.served()
        except RefusedError as error:  # A build without statistics.
            log.warning("models whose directory was removed are not found: %s", error)
            served = {}
        return found_in(index, served)

    async def _compare(self) -> None:
        """Compare the resident models with the index periodically, and report models that two reads do not list."""
        before: frozenset[str] = frozenset()
        while True:
            await asyncio.sleep(self._times.index_interval_seconds)
            thought = self._service.resident()
            if (index := await self._watch.index()) is None:
                continue
            lacking = thought - index.having("READY") - index.having("LOADING")
            if lacking - index.models.keys():
                try:
                    lacking -= (await self._control.served()).keys()
                except ServerCallError:
                    continue
            if vanished := lacking & before & self._service.resident():
                self._service.vanished(vanished)
            before = lacking

    # Commands

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Start to carry out commands, in this order."""
        for command in commands:
            work = self._ask_for_restart(command) if isinstance(command, Recycle) else self._work(command)
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, command: Load | Unload) -> None:
        try:
            await (self._load(command) if isinstance(command, Load) else self._unload(command))
        except Exception as defect:  # The core needs a report in any case.
            log.exception("the policy has a defect")
            why = f"the policy has a defect. See its log: {defect!r}"
            if isinstance(command, Load):
                self._service.load_ended(command.number, why, None, ())
            else:
                self._service.unload_ended(command.number, why)

    async def _load(self, command: Load) -> None:
        before = None if command.watch else await self._reading()
        error = await (self._watch.load(command.model, None) if command.watch else self._issue(command))
        if error is not None:
            self._service.load_ended(command.number, error, None, ())
            return
        versions = await self._watch.versions(command.model)
        after = await self._reading() if before is not None else None
        growth = None if before is None or after is None else before.growth_to(after)
        self._service.load_ended(command.number, None, growth, versions)
        if after is not None:
            self._service.memory_read(after)
        else:
            self._read_now.set()

    async def _issue(self, command: Load) -> str | None:
        """Order a load and wait for its end. Return None, or the error."""
        try:
            override = await asyncio.to_thread(self._service.override, command.model, command.versions)
        except (RepositoryError, OSError) as wrong:
            return str(wrong)
        call = asyncio.create_task(self._control.load(command.model, None, override))
        call.add_done_callback(retrieve)
        try:
            await asyncio.wait({call}, timeout=self._times.silent_call_seconds)
            return await self._watch.load(command.model, call)
        finally:
            call.cancel()

    async def _unload(self, command: Unload) -> None:
        refused, accepted = "", set[str]()
        if not command.watch:
            async with self._one_after_another:  # An ensemble is unloaded before its parts.
                for name in command.names:
                    try:
                        await self._control.unload(name, self._times.call_seconds)
                    except RefusedError as error:
                        refused = str(error)
                        with suppress(ServerCallError):
                            accepted |= {name} - (await self._control.served()).keys()
                    except ServerCallError as error:
                        log.warning("whether %s is unloaded is unknown, so its index entry is watched: %s", name, error)
                    else:
                        accepted.add(name)
        why = await self._watch.unloads(command.names, refused, accepted)
        self._service.unload_ended(command.number, why)
        if why is None:
            self._read_now.set()

    async def _ask_for_restart(self, command: Recycle) -> None:
        """Write the file that requests a restart, and retry until it is written. No lease is granted before."""
        while True:
            try:
                await asyncio.to_thread(write_whole, self._recycle, f"{command.reason}\n".encode())
                break
            except OSError as error:
                log.error("cannot write %s, so Triton is not restarted yet: %s", self._recycle, error)
                await asyncio.sleep(self._times.restart_retry_seconds)
        log.warning("restart of Triton requested: %s", command.reason)

    # Memory

    async def _read_memory(self) -> None:
        """Report readings, until one is of another Triton."""
        last = monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FAST_SECONDS if self._service.is_busy() else SLOW_SECONDS):
                    await self._read_now.wait()
            self._read_now.clear()
            try:
                reading = await self._memory.read()
            except ServerCallError as error:
                if monotonic() - last > self._times.unreadable_seconds:
                    self._service.memory_read(MemoryReading(), str(error))
                continue
            last = monotonic()
            if reading.server != self._server:
                return
            self._service.memory_read(reading)

    async def _reading(self) -> MemoryReading | None:
        """Return a reading, or None if there is none now."""
        try:
            return await self._memory.read()
        except ServerCallError as error:
            log.warning("cannot read memory: %s", error)
            return None


def found_in(index: ModelIndex, served: Mapping[str, tuple[int, ...]]) -> ServerInventory:
    """Return the core's inventory from the index and from served models whose directory was removed."""
    loading = index.having("LOADING") - {MEMORY_MODEL}
    unloading = index.having("UNLOADING") - loading - {MEMORY_MODEL}
    resident = (index.having("READY") | (served.keys() - index.models.keys())) - loading - unloading - {MEMORY_MODEL}
    versions = {model: index.in_state(model, "READY") or served[model] for model in resident}
    return ServerInventory(tuple(sorted(resident)), tuple(sorted(loading)), tuple(sorted(unloading)), versions)
