"""Carries the core's commands out at models of vLLM that share a slice: a load wakes a model, an unload has it sleep.

What does not give its memory back is treated ever harder, as llmux does: weights to the memory of the host (level 1),
where they fit there; dropped (level 2); the end of the process, which is started anew when its model is wanted.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic

from tidegate_contracts.eviction import MODELS_SHARE, EvictionSettings, ManagedModel, Sleep
from tidegate_contracts.openai import PROCESS_PORTS

from ..core.messages import Command, Load, Recycle, ServerInventory, Unload
from ..server import MemoryReading, ModelRepository, ServerEvents
from .control import EngineControl, EngineError, GoneError, Process, Seen

FAST_SECONDS, SLOW_SECONDS = 0.2, 1.0  # Between two looks: while room is waited for, and else.
AGAIN_SECONDS = 0.5  # Between two tries to reach the engine's container, and two looks at a process that starts.
BLIND_SECONDS = 30.0  # Without an answer for so long, memory cannot be read.
SLEEP_SECONDS = 120.0  # That vLLM may take to move weights to the memory of the host, or back: 36 s by llmux's README.
FREED_SECONDS = 5.0  # After which memory is not back that a sleep has freed: Ollama sees it within 1.5 s.
END_SECONDS = 10.0  # That the end of a process may take, before it is killed.
TOLERANCE, TOLERANCE_SHARE = 64 << 20, 20  # Bytes that readings may be off by, or this part of what is to come back.
HEALTH_SECONDS, UNWELL_LOOKS = 10.0, 6  # Between two looks whether a model that is awake answers; those that end it.
OTHER_VERSION = 0  # That of a process which was started otherwise than the settings say: none is called so.
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Held:
    """What is known of a process."""

    kept_bytes: int  # What it keeps of the slice while it sleeps: thought so, until a sleep has shown it.
    whole_bytes: int | None = None  # What it takes while it is awake, that included; None: not measured here.
    level: int = 2  # How its model sleeps, where it does; one that a predecessor put to sleep reads its weights again.
    host_bytes: int = 0  # What its weights take in the memory of the host while it sleeps.


@dataclass(eq=False)
class SleepDriver:
    """Holds what is known of the processes of one engine's container, and all that is under way there.

    One process starts, wakes or falls asleep at a time: vLLM, as it starts, takes what others do to the memory for its
    own, or ends (`determine_available_memory` of vllm/v1/worker/gpu_worker.py); and each change is measured.
    """

    _engines: EngineControl
    _repository: Callable[[], ModelRepository]
    _events: ServerEvents
    _settings: Callable[[], EvictionSettings]
    is_up: bool = False
    _seen: Seen = field(default_factory=lambda: Seen("", "", 0, None))
    _held: dict[str, Held] = field(default_factory=dict)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._one, self._looking = asyncio.Lock(), asyncio.Lock()

    # The connection

    async def follow(self) -> None:
        """Look at the engine's container for ever: report what is awake there, memory, and its end."""
        said = ""
        while True:
            try:
                await self._look()
                found = await self._found()
            except EngineError as error:
                if str(error) != said:
                    said = str(error)
                    log.info("waiting for the engine's container: %s", said)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            self.is_up, said = True, ""
            self._events.memory_read(self._reading())  # whether there are readings, before anything is done
            self._events.server_back(found)
            self._events.memory_read(self._reading())
            try:
                why = await self._watch(self._seen.instance)
            finally:
                self.is_up = False
                ending = [*self._tasks]
                for task in ending:
                    task.cancel()
            self._held.clear()
            self._events.server_lost(why)
            await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        """Watch nothing more; processes go on with what they do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def port(self, model: str) -> int:
        """Return where a model answers that is awake; 0 where its process has ended."""
        process = self._seen.processes.get(model)
        return 0 if process is None else process.port

    async def _watch(self, instance: str) -> str:
        """Report memory and ended processes until the container has ended; return what has been seen of that."""
        answered, healthy, unwell = monotonic(), monotonic(), Counter[str]()
        while True:
            await asyncio.sleep(FAST_SECONDS if self._events.is_busy() else SLOW_SECONDS)
            try:
                await self._look()
            except GoneError:
                return "its container has ended"
            except EngineError as error:
                if monotonic() - answered > BLIND_SECONDS:
                    self._events.memory_read(MemoryReading(), str(error))
                continue
            answered = monotonic()
            if self._seen.instance != instance:
                return "its container was started anew"
            if vanished := self._events.resident() - self._seen.processes.keys():
                self._events.vanished(vanished)
            self._events.memory_read(self._reading())
            if monotonic() - healthy > HEALTH_SECONDS:
                healthy = monotonic()
                await self._end_unwell(unwell)

    async def _end_unwell(self, unwell: Counter[str]) -> None:
        """End processes that are awake, and have not answered for long."""
        awake = {model: each for model, each in self._seen.processes.items() if model in self._events.resident()}
        answers = await asyncio.gather(*(self._engines.is_healthy(each.port) for each in awake.values()))
        for model, is_healthy in zip(awake, answers, strict=True):
            unwell[model] = 0 if is_healthy else unwell[model] + 1
            if unwell[model] >= UNWELL_LOOKS:
                log.error("%s has not answered for long: its process is ended", model)
                unwell[model] = 0
                with suppress(EngineError):
                    await self._end(model)

    async def _found(self) -> ServerInventory:
        """Return which models are awake, and which are being started."""
        resident, loading, versions = list[str](), list[str](), dict[str, tuple[int, ...]]()
        for model, process in self._seen.processes.items():
            told = self._told(model)
            self._held[model] = Held(self._sleep.kept_bytes)
            try:
                sleeps = await self._engines.is_sleeping(process.port)
            except EngineError:  # it starts, or hangs
                loading.append(model)
                continue
            if sleeps:
                self._held[model].host_bytes = await self._host_bytes(model)
            else:
                resident.append(model)
                if told is not None and told.versions:
                    is_same = process.command == self._command(told)
                    versions[model] = told.versions if is_same else (OTHER_VERSION,)
        return ServerInventory(tuple(sorted(resident)), tuple(sorted(loading)), versions=versions)

    # Commands

    def carry_out(self, commands: Iterable[Command]) -> None:
        """Begin to carry commands out, in this order."""
        for command in commands:
            task = asyncio.create_task(self._work(command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, command: Command) -> None:
        if isinstance(command, Recycle):
            log.warning("the engine's container is asked to end: %s", command.reason)
            while True:  # no lease is granted before
                with suppress(EngineError):
                    await self._engines.restart()
                await asyncio.sleep(AGAIN_SECONDS)
        why, grown = None, None
        try:
            async with self._one:
                if isinstance(command, Load):
                    grown = await self._load(command.model)
                else:
                    await self._unload(command.model)
        except EngineError as error:
            why = str(error)
        except Exception as defect:  # the core waits for a report all the same
            log.exception("the policy has a defect")
            why = f"the policy has a defect, which is in its log: {defect!r}"
        if isinstance(command, Unload):
            self._events.unload_ended(command.number, why)
        else:
            self._events.load_ended(command.number, why, grown, () if why else command.versions)
        with suppress(EngineError):
            await self._look()
            self._events.memory_read(self._reading())

    async def _load(self, model: str) -> int:
        """Wake a model, or start its process; return what memory it took beside what it keeps. Raises EngineError."""
        if (told := self._told(model)) is None:
            raise EngineError(f"the settings have no model {model}")
        command = self._command(told)
        before = await self._look()
        process = before.processes.get(model)
        if process is not None:
            why = "it is started otherwise now"
            if process.command == command:
                try:
                    held = await self._wake(model, process)
                    return await self._grew(model, held, before)
                except EngineError as error:
                    why = str(error)
            log.warning("the process of %s is ended, and started anew: %s", model, why)
            await self._end(model)
            before = await self._look()
        used = {each.port for each in before.processes.values()}
        port = next((each for each in PROCESS_PORTS if each not in used), None)
        if port is None:
            raise EngineError(f"no more than {len(PROCESS_PORTS)} models can share a slice")
        await self._engines.start(model, command, port)
        held = self._held[model] = Held(self._sleep.kept_bytes)
        try:
            await self._until_healthy(model, port)
        except EngineError:
            await self._end(model)
            raise
        return await self._grew(model, held, before, of_kept=held.kept_bytes)

    async def _grew(self, model: str, held: Held, before: Seen, of_kept: int = 0) -> int:
        """Learn what a process takes that is awake now; return by how much memory grew, without this part of it."""
        now = await self._look()
        if model not in now.processes:
            raise EngineError(f"the process of {model} has ended")
        grown = max(0, now.used_bytes - before.used_bytes - of_kept)
        held.whole_bytes = held.kept_bytes + grown
        return grown

    async def _wake(self, model: str, process: Process) -> Held:
        """Wake a model whose process is there, or just starts; raises EngineError."""
        held = self._held.setdefault(model, Held(self._sleep.kept_bytes))
        if not await self._engines.is_healthy(process.port):
            await self._until_healthy(model, process.port)
        if await self._engines.is_sleeping(process.port):
            seconds = SLEEP_SECONDS if held.level == 1 else float(self._sleep.start_seconds)
            await self._engines.wake(process.port, held.level, seconds)
            if await self._engines.is_sleeping(process.port):
                raise EngineError(f"vLLM says that {model} sleeps, though it was woken")
        held.level, held.host_bytes = 2, 0
        return held

    async def _until_healthy(self, model: str, port: int) -> None:
        """Wait until a process that starts listens; raises EngineError."""
        until = monotonic() + self._sleep.start_seconds
        while not await self._engines.is_healthy(port):
            if model not in (await self._look()).processes:
                raise EngineError(f"the process of {model} ended as it started: why is in the log of its container")
            if monotonic() > until:
                raise EngineError(f"the process of {model} does not answer after {self._sleep.start_seconds} s")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _unload(self, model: str) -> None:
        """Have a model sleep until its memory is back, or end its process; raises EngineError where that stays."""
        before, told = await self._look(), self._told(model)
        process = before.processes.get(model)
        if process is None:
            return
        if told is not None and process.command == self._command(told):
            size = await self._host_bytes(model)
            held = self._held.setdefault(model, Held(self._sleep.kept_bytes))
            others = sum(other.host_bytes for name, other in self._held.items() if name != model)
            levels = (1, 2) if others + size <= self._sleep.host_memory_bytes else (2,)
            for level in levels:
                try:
                    if await self._engines.is_sleeping(process.port):
                        if level == levels[0]:  # whoever has told it to
                            held.level, held.host_bytes = 2, size
                            return
                        await self._wake(model, process)  # for a sleeper only sleeps on
                    held.level = level  # whatever comes of it: a wake for the next level reads no weights in vain
                    await self._engines.sleep(process.port, level, SLEEP_SECONDS)
                    if await self._is_freed(held, process, before, told.footprint_bytes or 0):
                        held.host_bytes = size if level == 1 else 0
                        return
                    log.warning("%s sleeps, level %d, and its memory is not back", model, level)
                except EngineError as error:
                    log.warning("%s cannot be put to sleep, level %d: %s", model, level, error)
        log.warning("the process of %s is ended: it is started anew when its model is wanted", model)
        await self._end(model)

    async def _is_freed(self, held: Held, process: Process, before: Seen, footprint: int) -> bool:
        """Tell whether a sleeper's memory comes back, but for what it may keep."""
        if not await self._engines.is_sleeping(process.port):
            return False
        whole = footprint if held.whole_bytes is None else held.whole_bytes
        least = whole - self._sleep.kept_bytes - max(TOLERANCE, whole // TOLERANCE_SHARE)
        until = monotonic() + FREED_SECONDS
        while (freed := before.used_bytes - (await self._look()).used_bytes) < least:
            if monotonic() > until:
                return False
            await asyncio.sleep(FAST_SECONDS)
        if held.whole_bytes is not None:
            held.kept_bytes = max(0, held.whole_bytes - freed)
        return True

    async def _end(self, model: str) -> None:
        """End a model's process, which nobody calls; raises EngineError where it is still there."""
        await self._engines.end(model, END_SECONDS)
        if model in (await self._look()).processes:
            raise EngineError(f"the process of {model} does not end")

    # What is known

    @property
    def _sleep(self) -> Sleep:
        found = self._settings().sleep
        assert found is not None  # the settings were refused
        return found

    def _told(self, model: str) -> ManagedModel | None:
        return next((each for each in self._settings().models if each.name == model), None)

    def _command(self, told: ManagedModel) -> tuple[str, ...]:
        """Return what starts a model's process: vLLM takes the share of the slice that it is given, and fills it."""
        part, whole = MODELS_SHARE
        total = self._seen.total_bytes or self._settings().capacity_bytes * whole // part
        share = min(1.0, int(1000 * (told.footprint_bytes or 0) / total) / 1000)
        return (*told.command, "--enable-sleep-mode", f"--gpu-memory-utilization={share}")

    async def _host_bytes(self, model: str) -> int:
        """Return what a model's weights take: what they do on disk; all that it takes, where nobody can look there."""
        told = self._told(model)
        if told is None:
            return 0
        try:
            files = await asyncio.to_thread(self._repository().look, model, told.versions)
        except OSError:
            files = None
        size = files.estimate_bytes if files is not None else None
        return (told.footprint_bytes or 0) if size is None else size

    async def _look(self) -> Seen:
        """Look at the engine's container; what has ended is forgotten. Raises EngineError."""
        async with self._looking:  # no older answer comes after a newer one
            self._seen = await self._engines.look()
        for model in self._held.keys() - self._seen.processes.keys():
            del self._held[model]
        return self._seen

    def _reading(self) -> MemoryReading:
        """Return what is in use, without what processes keep while their models sleep: that is no model's."""
        seen = self._seen
        kept = sum(held.kept_bytes for held in self._held.values())
        return MemoryReading(seen.source, max(0, seen.used_bytes - kept), seen.total_bytes, seen.instance)
