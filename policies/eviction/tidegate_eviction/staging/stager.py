"""Which models are staged when: before each load what it reads, ahead of loads what comes next, by the cost rule."""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TypeVar

from tidegate_contracts.eviction import Staging

from ..core.outlook import Outlook
from ..policies import Candidate
from ..policies.registry import worth
from ..server import RepositoryError
from .copying import ChangedError, Copy, StagingError
from .rule import CHEAPEST, candidate
from .sources import Contents
from .tier import Key, Tier, disk_bytes

AHEAD_SECONDS = 3600.0  # So long before a warm window opens its models are staged.
TRIES = 3  # Times that a model is copied which changes meanwhile.
_LOOK_SECONDS = 1.0  # Seconds between two looks for what is to be staged ahead.
_WAIT_SECONDS = 0.2  # Seconds between two looks for room that loads under way take.
_AGAIN_SECONDS = 60.0  # Seconds after which what could not be staged ahead is tried again.
_THREADS, _COPIES = 4, 16
_FULL = (errno.ENOSPC, errno.EDQUOT)
Result = TypeVar("Result")
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
        self._claims: Counter[Key] = Counter()  # What loads are about to read: it stays.
        self._coming: dict[Key, int] = {}  # Bytes that are reserved for copies under way.
        self._copies: dict[Key, tuple[Copy, asyncio.Task[None]]] = {}
        self._used: dict[str, float] = {}  # When a load last read a model.
        self._not_before: dict[str, float] = {}
        self._syncing: set[asyncio.Task[None]] = set()

    @property
    def used_bytes(self) -> int:
        """Bytes that staged files take, and copies under way will."""
        return sum(self.tier.staged.values()) + sum(self._coming.values())

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
        await asyncio.gather(*(task for _, task in self._copies.values()), *self._syncing, return_exceptions=True)
        self._threads.shutdown(wait=False)
        self._copying.shutdown(wait=False)

    # For a load

    async def ensure(self, model: str) -> float:
        """Have the server find a model and its parts, with what they contain now; return how many seconds were spent on
        copying. Raises StagingError."""
        begun = monotonic()
        for tries_left in reversed(range(TRIES)):
            wanted = await self._look(model)
            claimed = [each.key for each in wanted]
            self._claims.update(claimed)
            try:
                lacking = [each for each in wanted if not await self._is_here(each)]
                passed = await self._fetch(lacking) if lacking else ""
                for each in wanted:
                    await self._link(each)
                if not wanted:
                    await self._on_thread(self.tier.unlink, model)
                break
            except ChangedError:
                if not tries_left:
                    raise
            except OSError as error:
                raise StagingError(f"model {model} cannot be staged: {error}") from error
            finally:
                self._claims.subtract(claimed)
                self._claims += Counter()
        self._used |= {name: monotonic() for name, _ in claimed}
        if not lacking:
            self.counts.found += 1
        elif passed:
            self.counts.passed += 1
            log.warning("%s is loaded from the repository itself: %s", model, passed)
        else:
            self.counts.copied += 1
            return monotonic() - begun
        return 0.0

    async def doubt(self, model: str) -> None:
        """Stage a model anew for its next load: this one has failed."""
        for key in self.keys(model):
            if key in self.tier.staged and not self._claims[key] and key not in self._copies:
                with suppress(OSError):
                    await self._on_thread(self.tier.discard, key)

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
        if contents.key in self._copies:
            return False
        if await self._on_thread(self.tier.is_whole, contents):
            return True
        if contents.key in self.tier.staged:
            log.warning("what was staged of %s is not whole: it is copied anew", contents.model)
            await self._on_thread(self.tier.discard, contents.key)
        return False

    async def _fetch(self, lacking: Sequence[Contents]) -> str:
        """Copy all of these; return why some are left where they lie, or raise where no server can read them."""
        waits = not all(each.source.is_folder for each in lacking)
        for is_last in (False, True):
            new = [each for each in lacking if each.key not in self._copies and each.key not in self.tier.staged]
            why = await self._reserve(new, self._may_go_for_a_load, waits)
            if not why:
                for each in new:
                    self._begin(each)
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
            idle = self._idle()  # the volume is full before the size is reached that it was to have
            await self._discard(idle, sum(candidate.bytes for _, candidate in idle))
        for error in errors:
            if not isinstance(error, OSError):
                raise error
        left = [each for each in lacking if each.key not in self.tier.staged]
        for each in left:
            if not each.source.is_folder:
                raise StagingError(f"model {each.model} cannot be staged: {why}")
        return why if left else ""

    async def _link(self, contents: Contents) -> None:
        key, before = contents.key, self.tier.links.get(contents.model)
        staged = key in self.tier.staged
        await self._on_thread(self.tier.link, contents.model, key if staged else Path(contents.source.where))
        if before and before != contents.stamp:
            await self._on_thread(self.tier.discard, (contents.model, before))

    # Ahead of loads

    async def follow(self) -> None:
        """Stage ahead what is wanted next, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._ahead()
            except (StagingError, OSError) as error:
                log.warning("nothing is staged ahead for now: %s", error)

    async def _ahead(self) -> None:
        if self._coming or self._claims:
            return
        if self.used_bytes > self.settings.size_bytes:
            await self._reserve([], self._may_go_for_a_load)
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
        lacking = [each for each in await self._look(model) if not await self._is_here(each)]
        if any(each.listing.linked for each in lacking) or await self._reserve(
            lacking, lambda: [[each for each in self._idle(kept) if most is None or worth(each[1], monotonic()) < most]]
        ):
            return False
        for each in lacking:
            self._begin(each)
        for each in lacking:
            await asyncio.shield(self._copies[each.key][1])
        self.counts.ahead += 1
        return True

    # Room and copies

    async def _reserve(
        self,
        new: Sequence[Contents],
        may_go: Callable[[], list[list[tuple[Key, Candidate]]]],
        waits: bool = False,
    ) -> str:
        """Reserve room for copies; return why there is none. `may_go` returns what may go for it, the first list before
        the second. `waits`: until loads under way are done with theirs."""
        linked = [path for each in new for path in each.listing.linked]
        if linked:
            return f"{linked[0]} is a link to a folder"
        sizes = {each.key: disk_bytes(each) for each in new}
        needed, size = sum(sizes.values()), self.settings.size_bytes
        if needed > size:
            return f"its files take {needed} bytes, and the staging folder has {size}"
        while True:
            async with self._room:
                groups = may_go()
                lacking = self.used_bytes + needed - size
                for group in groups:
                    if lacking > 0:
                        lacking -= await self._discard(group, lacking)
                if lacking <= 0:
                    self._coming |= sizes
                    return ""
            if not waits:
                return "all of the staging folder is in use"
            await asyncio.sleep(_WAIT_SECONDS)

    async def _discard(self, group: list[tuple[Key, Candidate]], lacking: int) -> int:
        """Discard what the cost rule chooses; return how many bytes are free by that."""
        by_candidate = {id(candidate): key for key, candidate in group}
        candidates = [candidate for _, candidate in group]
        freed = 0
        for victim in CHEAPEST.choose(candidates, lacking, monotonic()):
            key = by_candidate[id(victim)]
            freed += self.tier.staged[key]
            self.counts.discarded += 1
            log.info("what was staged of %s goes", key[0], extra={"said": {"model": key[0], "bytes": victim.bytes}})
            is_read = key[0] in self.outlook(0.0).held and self.tier.links.get(key[0]) == key[1]
            await self._on_thread(self._let_go, key, is_read)
        return freed

    def _let_go(self, key: Key, is_read: bool) -> None:
        """Delete what is staged; where the server has read it, it still finds a folder of that name."""
        if is_read:
            found = self.contents(key[0])
            self.tier.link(key[0], Path(found.source.where) if found and found.source.is_folder else None)
        self.tier.discard(key)

    def _idle(self, kept: Iterable[Key] = ()) -> list[tuple[Key, Candidate]]:
        """Return what is staged, and of no use to what is in memory or being loaded."""
        outlook, now = self.outlook(0.0), monotonic()
        kept = {*kept, *self._claims, *self._copies}
        found = []
        for key in set(self.tier.staged) - kept:
            if key[0] not in outlook.held or self.tier.links.get(key[0]) != key[1]:
                found.append((key, self._candidate(outlook, key, now)))
        return found

    def _may_go_for_a_load(self) -> list[list[tuple[Key, Candidate]]]:
        """Return what is idle; and then the files of models in memory, which the server has read."""
        outlook, now = self.outlook(0.0), monotonic()
        idle = self._idle()
        kept = {*(key for key, _ in idle), *self._claims, *self._copies}
        rest = [key for key in set(self.tier.staged) - kept if key[0] in outlook.resident]
        return [idle, [(key, self._candidate(outlook, key, now)) for key in rest]]

    def _candidate(self, outlook: Outlook, key: Key, now: float) -> Candidate:
        """Return what is staged as the cost rule sees it."""
        return candidate(outlook, key[0], self.tier.staged.get(key, 0), self._used.get(key[0], 0.0), now)

    def _begin(self, contents: Contents) -> None:
        copy = Copy(contents, self.settings.bandwidth_bytes_per_second, self._is_hurried)
        task = asyncio.create_task(self._copy(copy))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who waits for it is told
        self._copies[contents.key] = copy, task

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
            except BaseException:
                self.tier.forget(partial)
                raise

        try:
            await asyncio.get_running_loop().run_in_executor(self._copying, run)
        finally:
            del self._copies[key]
            del self._coming[key]
        self.counts.bytes += sum(file.size for file in copy.contents.listing.files)
        task = asyncio.create_task(self._sync(key))
        self._syncing.add(task)
        task.add_done_callback(self._syncing.discard)

    async def _sync(self, key: Key) -> None:
        with suppress(OSError):  # discarded meanwhile, or lost: then it is copied anew
            await self._on_thread(self.tier.sync, key)

    async def _on_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
