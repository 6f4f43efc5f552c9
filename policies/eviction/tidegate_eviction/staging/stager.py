"""Which models are staged when: before each load what it reads, ahead of loads what comes next, by the cost rule."""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TypeVar

from tidegate_contracts.eviction import Staging

from ..core.outlook import Outlook
from ..policies import Candidate
from ..policies.registry import worth
from ..triton.repository import RepositoryError
from .copying import ChangedError, Copy, StagingError
from .rule import CHEAPEST, candidate
from .sources import Contents
from .tier import EMPTY, Key, Tier, disk_bytes

AHEAD_SECONDS = 3600.0  # So long before a warm window opens its models are staged.
SYNC_SECONDS = 10.0  # After so long a copy is written to the disk: at once it would slow down the load that reads it.
TRIES = 3  # Times that a model is copied which changes meanwhile.
_LOOK_SECONDS = 1.0  # Seconds between two looks for what is to be staged ahead.
ROOM_SECONDS = 600.0  # So long a load waits for room that other loads take, where the server cannot read the source.
_WAIT_SECONDS = 0.2  # Seconds between two looks for it.
_STOP_SECONDS = 2.0  # Seconds within which a copy ends that is told to; its room is taken until then.
_AGAIN_SECONDS = 60.0  # Seconds after which what could not be staged ahead is tried again.
_THREADS, _COPIES = 4, 16
_IN_USE = "all of the staging folder is in use by loads under way"
_FULL = (errno.ENOSPC, errno.EDQUOT)
Result = TypeVar("Result")
Group = list[tuple[Key, Candidate]]
log = logging.getLogger(__name__)


@dataclass
class StagingCounts:
    """What was done since the start."""

    found: int = 0  # Loads whose files were staged.
    copied: int = 0  # Loads that waited for copies.
    passed: int = 0  # Loads from the source itself: what they read did not fit, or could not be written.
    ahead: int = 0  # Models that were staged ahead.
    discarded: int = 0  # Models whose files went for others'.
    bytes: int = 0  # Bytes of files that were copied.
    used_bytes: int = 0  # What staged files take now, and what they may.
    size_bytes: int = 0


@dataclass(eq=False)
class Stager:
    """Stages the models of one pool; all of its own state is the event loop's, what blocks is on threads."""

    settings: Staging
    contents: Callable[[str], Contents | None]
    """Returns what a load of a model reads now; blocks, raises RepositoryError and OSError."""
    outlook: Callable[[float], Outlook]
    keys: Callable[[str], Sequence[Key]]
    """Returns what a model and its parts would be staged under, as was seen last."""
    counts: StagingCounts = field(default_factory=StagingCounts)

    def __post_init__(self) -> None:
        self.tier = Tier(Path(self.settings.folder))
        self._threads = ThreadPoolExecutor(_THREADS, "staging")
        self._copying = ThreadPoolExecutor(_COPIES, "copying")
        self._room = asyncio.Lock()
        # For each key there is one copy at a time, or one deletion: whoever else wants it waits for the same. Copies
        # begin under the lock only, which nobody holds while he waits for a copy.
        self._claims: Counter[Key] = Counter()  # What loads are about to read: it stays.
        self._copies: dict[Key, tuple[Copy, asyncio.Task[None]]] = {}
        self._going: dict[Key, asyncio.Task[None]] = {}
        self._used: dict[str, float] = {}  # When a load last read a model.
        self._not_before: dict[str, float] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes that staged files take, and copies under way will."""
        return sum((self.tier.staged | {key: copy.bytes for key, (copy, _) in self._copies.items()}).values())

    def told(self) -> StagingCounts:
        """Return the counts as they are now."""
        return replace(self.counts, used_bytes=self.used_bytes, size_bytes=self.settings.size_bytes)

    def open(self) -> None:
        """Find what a predecessor staged; blocks, raises OSError."""
        self.tier.open()

    async def close(self) -> None:
        """End what is being copied."""
        for copy, _ in self._copies.values():
            copy.stop()
        ending = (*(task for _, task in self._copies.values()), *self._going.values())
        await asyncio.gather(*ending, return_exceptions=True)
        self._threads.shutdown(wait=False)
        self._copying.shutdown(wait=False)

    # For a load

    async def ensure(self, model: str) -> float:
        """Have the server find a model and its parts, with what they contain now; return how many seconds were spent on
        copying. Raises StagingError."""
        begun = monotonic()
        for tries_left in reversed(range(TRIES)):
            wanted = await self._look(model)
            try:
                while (copied := await self._bring(model, wanted, monotonic() < begun + ROOM_SECONDS)) is None:
                    await asyncio.sleep(_WAIT_SECONDS)
                break
            except ChangedError:
                if not tries_left:
                    raise
            except OSError as error:
                raise StagingError(f"model {model} cannot be staged: {error}") from error
        self._used |= {each.model: monotonic() for each in wanted}
        return monotonic() - begun if copied else 0.0

    async def doubt(self, model: str) -> None:
        """Stage a model anew for its next load: this one has failed."""
        for key in self.keys(model):
            if self._is_free(key) and key[0] not in self.outlook(0.0).resident:
                with suppress(OSError):
                    await self._delete(key)

    async def _bring(self, model: str, wanted: Sequence[Contents], may_wait: bool) -> bool | None:
        """Have the server find these; tell whether they were copied for it. None: there is no room for now, and nothing
        is held while the load waits for it."""
        with self._claimed(wanted):
            lacking = [each for each in wanted if not await self._is_here(each)]
            why = await self._begin(wanted, self._may_go, stops=True) if lacking else ""
            if why == _IN_USE and may_wait and not all(each.source.is_folder for each in lacking):
                return None
            passed = await self._copied(lacking, why)
            for each in wanted:
                await self._link(each)
            if not wanted:
                await self._on_thread(self.tier.unlink, model)
        if not lacking:
            self.counts.found += 1
        elif passed:
            self.counts.passed += 1
            log.warning("%s is loaded from the repository itself: %s", model, passed)
        else:
            self.counts.copied += 1
        return bool(lacking) and not passed

    async def _look(self, model: str) -> list[Contents]:
        def look() -> list[Contents]:
            found = self.contents(model)
            if found is None:
                return []
            return [found, *filter(None, map(self.contents, found.parts))]

        try:
            return await self._on_thread(look)
        except (RepositoryError, OSError) as error:
            raise StagingError(str(error)) from error

    async def _is_here(self, contents: Contents) -> bool:
        if not self._is_staged(contents.key):
            return False
        if await self._on_thread(self.tier.is_whole, contents):
            return self._is_staged(contents.key)
        async with self._room:  # meanwhile it may have been copied anew; that begins no more now
            if self._is_staged(contents.key) and not await self._on_thread(self.tier.is_whole, contents):
                log.warning("what was staged of %s is not whole: it is copied anew", contents.model)
                await self._delete(contents.key)
        return self._is_staged(contents.key)

    async def _copied(self, lacking: Sequence[Contents], why: str) -> str:
        """Wait until these are copied; return why some are left where they lie, or raise where no server can read them.
        `why` is what kept their copies from beginning."""
        for is_last in (False, True):
            tasks = []
            for each in lacking:
                if each.key in self._copies:
                    copy, task = self._copies[each.key]
                    copy.hurries.set()
                    tasks.append(task)
            ended = await asyncio.gather(*map(asyncio.shield, tasks), return_exceptions=True)
            errors = [each for each in ended if isinstance(each, BaseException)]
            why = str(errors[0]) if errors else why
            if is_last or not any(isinstance(each, OSError) and each.errno in _FULL for each in errors):
                break
            async with self._room:  # the volume is full before the size is reached that it was to have
                idle, _ = self._may_go()
                await self._discard(idle, sum(candidate.bytes for _, candidate in idle))
            why = await self._begin(lacking, self._may_go, stops=True)
        for error in errors:
            if not isinstance(error, OSError):
                raise error
        left = [each for each in lacking if not self._is_staged(each.key)]
        for each in left:
            if not each.source.is_folder:
                raise StagingError(f"model {each.model} cannot be staged: {why}")
        return why if left else ""

    async def _link(self, contents: Contents) -> None:
        key = contents.key
        target = key if self._is_staged(key) else Path(contents.source.where)
        before = await self._on_thread(self.tier.link, contents.model, target)
        if before and before != key and self._is_free(before):
            await self._delete(before)

    # Ahead of loads

    async def follow(self) -> None:
        """Stage ahead what is wanted next, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._ahead()
            except (StagingError, OSError) as error:
                log.warning("nothing is staged ahead for now: %s", error)
            except Exception:  # loads do without it
                log.exception("the policy has a defect, and stages nothing ahead for %g s", _AGAIN_SECONDS)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _ahead(self) -> None:
        if self._copies or self._claims:
            return
        if self.used_bytes > self.settings.size_bytes:
            await self._begin([], self._may_go)
        outlook, now = self.outlook(AHEAD_SECONDS), monotonic()
        for place, model in enumerate((*outlook.sure, *outlook.likely)):
            keys = self.keys(model)
            if not keys or self._not_before.get(model, now) > now or all(key in self.tier.staged for key in keys):
                continue
            self._not_before[model] = now + _AGAIN_SECONDS
            is_sure = place < len(outlook.sure)
            before = outlook.sure[:place] if is_sure else outlook.sure
            kept = {key for each in (*before, model) for key in self.keys(each)}
            most = None if is_sure else worth(self._candidate(outlook, keys[0], now), now)
            if await self._stage(model, kept, most):
                return

    async def _stage(self, model: str, kept: set[Key], most: float | None) -> bool:
        """Copy a model whose room is to be had from what is not kept, and worth less; tell whether that was done."""
        wanted = await self._look(model)
        lacking = [each for each in wanted if not await self._is_here(each)]
        kept |= {each.key for each in wanted}
        if await self._begin(
            lacking,
            lambda: [[each for each in self._may_go(kept)[0] if most is None or worth(each[1], monotonic()) < most]],
        ):
            return False
        copies = [self._copies[each.key][1] for each in lacking if each.key in self._copies]
        for copy in copies:
            await asyncio.shield(copy)
        self.counts.ahead += bool(copies)
        return bool(copies)

    # Room and copies

    @contextmanager
    def _claimed(self, wanted: Sequence[Contents]) -> Iterator[None]:
        keys = [each.key for each in wanted]
        self._claims.update(keys)
        try:
            yield
        finally:
            self._claims.subtract(keys)
            self._claims += Counter()

    def _is_staged(self, key: Key) -> bool:
        return key in self.tier.staged and key not in self._copies and key not in self._going

    def _is_free(self, key: Key) -> bool:
        return self._is_staged(key) and key not in self._claims

    async def _begin(
        self,
        wanted: Sequence[Contents],
        may_go: Callable[[], Sequence[Group]],
        stops: bool = False,
    ) -> str:
        """Begin to copy what is not staged of these, nor being copied; return why there is no room for it. `may_go`
        returns what may go, the first list before the second; `stops`: and then copies that no load waits for."""
        linked = [path for each in wanted for path in each.listing.linked]
        if linked:
            return f"{linked[0]} is a link to a folder"
        together, size = sum(map(disk_bytes, wanted)), self.settings.size_bytes
        if together > size:
            return f"its files take {together} bytes, and the staging folder has {size}"
        async with self._room:
            await asyncio.gather(*self._going.values(), return_exceptions=True)
            new = [each for each in wanted if not self._is_staged(each.key) and each.key not in self._copies]
            free = size - sum(map(disk_bytes, new))
            groups, kept = may_go(), {each.key for each in wanted}
            ahead = [it for key, it in self._copies.items() if stops and key not in kept and not it[0].hurries.is_set()]
            can_go = sum(each.bytes for group in groups for _, each in group) + sum(copy.bytes for copy, _ in ahead)
            if self.used_bytes - can_go > free:
                return _IN_USE
            for group in groups:
                if self.used_bytes > free:
                    await self._discard(group, self.used_bytes - free)
            if self.used_bytes > free and ahead:
                for copy, _ in ahead:
                    copy.stop()
                await asyncio.wait([task for _, task in ahead], timeout=_STOP_SECONDS)
            if self.used_bytes > free:
                return _IN_USE
            for each in new:
                copy = Copy(each, self.settings.bandwidth_bytes_per_second, self._is_hurried)
                self._copies[each.key] = copy, _told(asyncio.create_task(self._copy(copy)))
        return ""

    async def _discard(self, group: Group, lacking: int) -> None:
        """Discard what the cost rule chooses."""
        by_candidate = {id(candidate): key for key, candidate in group}
        candidates = [candidate for _, candidate in group]
        for victim in CHEAPEST.choose(candidates, lacking, monotonic()):
            key = by_candidate[id(victim)]
            if self._is_free(key):  # a load may have claimed it meanwhile
                self.counts.discarded += 1
                log.info("what was staged of %s goes", key[0], extra={"said": {"model": key[0], "bytes": victim.bytes}})
                await self._delete(key)

    async def _delete(self, key: Key) -> None:
        """Delete what is staged; where the server has read it, it still finds a folder of that name."""
        task = self._going[key] = _told(asyncio.create_task(self._let_go(key)))
        await asyncio.shield(task)

    async def _let_go(self, key: Key) -> None:
        model, instead = key[0], None
        try:
            if model in self.outlook(0.0).held and self.tier.links.get(model) == key[1]:
                instead = EMPTY
                with suppress(RepositoryError, OSError):
                    found = await self._on_thread(self.contents, model)
                    instead = Path(found.source.where) if found and found.source.is_folder else EMPTY
            await self._on_thread(self.tier.discard, key, instead)
        finally:
            del self._going[key]

    def _may_go(self, kept: Iterable[Key] = ()) -> tuple[Group, Group]:
        """Return what is staged, and of no use to what is in memory or being loaded; and then the files of models in
        memory, which the server has read."""
        outlook, now = self.outlook(0.0), monotonic()
        idle, in_memory = Group(), Group()
        for key in filter(self._is_free, set(self.tier.staged) - {*kept}):
            if key[0] not in outlook.held or self.tier.links.get(key[0]) != key[1]:
                idle.append((key, self._candidate(outlook, key, now)))
            elif key[0] in outlook.resident:
                in_memory.append((key, self._candidate(outlook, key, now)))
        return idle, in_memory

    def _candidate(self, outlook: Outlook, key: Key, now: float) -> Candidate:
        """Return what is staged, or is to be, as the cost rule sees it."""
        return candidate(outlook, key[0], self.tier.staged.get(key, 1), self._used.get(key[0], 0.0), now)

    def _is_hurried(self) -> bool:
        """Tell whether a load waits for a copy: all others yield."""
        return any(copy.hurries.is_set() for copy, _ in list(self._copies.values()))

    async def _copy(self, copy: Copy) -> None:
        key = copy.contents.key

        def run() -> None:
            partial = self.tier.partial()
            try:
                copy.run(partial)
                if (again := self.contents(key[0])) is None or again.key != key:
                    raise ChangedError(f"model {key[0]} changes while it is copied")
                self.tier.take_in(partial, key)
            except RepositoryError as error:
                raise StagingError(str(error)) from error
            finally:
                self.tier.forget(partial)

        try:
            await asyncio.get_running_loop().run_in_executor(self._copying, run)
        finally:
            del self._copies[key]
        self.counts.bytes += sum(file.size for file in copy.contents.listing.files)
        asyncio.get_running_loop().call_later(SYNC_SECONDS, self._sync, key)

    def _sync(self, key: Key) -> None:
        """Have it on the disk; what is discarded meanwhile, or lost, is copied anew."""
        with suppress(RuntimeError):  # the policy ends
            self._threads.submit(self.tier.sync, key)

    async def _on_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _told(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """Return a task whose error is that of whoever waits for it, and nobody's where nobody does."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
