"""Watches what a replica that loads its models by itself has loaded, and what not, and why; no call depends on it."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time
from typing import Final

from .question import PeriodicProbe
from .replica import Replica
from .request import NoAnswerError

LOOK_SECONDS = 5.0  # Seconds between two looks, at the least; but where somebody asks ...
FRESH_SECONDS = 0.5  # ... so many.
RESTS = 10.0
"""Times what a look took, for which nobody looks again: a server lists its repository for it, which may be an object
store, and works on nothing else meanwhile in one of its few threads."""
LONGEST_REST = 1800.0
ANSWER_SECONDS = 30.0  # A listing goes on there when nobody waits for it any more. Each time-out doubles the rest.
WAIT_SECONDS = 5.0  # For which whoever asks waits for a look; then what was seen before holds.
UNTOLD_SECONDS = 120.0
"""Seconds after which what is neither loaded nor loading, without a reason, has failed: the server polls until then."""
MOST_TOLD = 100  # Failures of one replica in the metrics.
UNTOLD: Final = (
    "the inference server has not loaded it and gives no reason, as where its configuration cannot be read, or "
    "where it looks at its repository no more: see its log"
)
Key = tuple[str, str]  # Model and version; no version where nothing is known of any.
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadIndex:
    """What a replica says of its models; its own words, made plain."""

    loaded: Mapping[str, tuple[int, ...]]  # Versions of each model that has any.
    failed: Mapping[Key, str]  # Why each could not be loaded; nothing where it gives no reason.
    loading: frozenset[Key]


@dataclass(frozen=True, slots=True)
class IndexQuestion:
    """How a kind of server is asked for its index, and how that is read; `read` raises ValueError."""

    request: bytes  # With %b for the host.
    read: Callable[[bytes], LoadIndex]


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a version is not loaded, and since when (Unix time) that is known."""

    why: str
    since: float


class LoadWatch(PeriodicProbe):
    """Asks one replica for its index, again and again, and tells what is new in the log."""

    def __init__(
        self,
        replica: Replica,
        question: IndexQuestion,
        host: str,
        said: Mapping[str, str],
        is_called: Callable[[str], bool],
        expected: Callable[[], Collection[Key]] = tuple,
    ) -> None:
        """Look from now on, until the replica is closed; `said` names it in the log.

        `is_called` tells whether the routing table has a model: nobody misses what else lies in a repository.
        `expected` returns the versions that calls go to by name: of a model that is loaded they are missed.
        """
        super().__init__(replica, question.request % host.encode())
        self.loaded: Mapping[str, tuple[int, ...]] = {}  # Versions of each model that has any.
        self.loaded_since: dict[str, float | None] = {}  # Unix time; None where it was loaded before the first look.
        self.loading: frozenset[Key] = frozenset()
        self.failed: dict[Key, LoadFailure] = {}
        self.why = "it was not asked yet"  # Why the last look had no answer, or nothing.
        self.seen_at: float | None = None
        """When (monotonic) what is told here was asked for; None where it is of no use, as after a restart."""
        self._read = question.read
        self._said = dict(said)
        self._untold: dict[Key, float] = {}
        self._is_called, self._expected = is_called, expected
        self._looked_at = 0.0
        self._missed = 0  # Time-outs in a row.
        self._rest = 0.0  # Seconds after a look in which there is no other.

    @property
    def seen(self) -> bool:
        """Whether the last look had an answer."""
        return not self.why

    async def look(self) -> None:
        """Look now, unless that was just done; who comes meanwhile waits for the same answer."""
        if self._asking is not None or monotonic() - self._looked_at >= FRESH_SECONDS:
            await self.ask(WAIT_SECONDS)

    def told(self) -> list[str]:
        """Return a line for each version that failed, of so many at most."""
        return [
            f"{_named(*key)} cannot be loaded at {self._replica.name}"
            f" (known since {datetime.fromtimestamp(failure.since, UTC):%Y-%m-%d %H:%M:%S} UTC): {failure.why}"
            for key, failure in [*self.failed.items()][:MOST_TOLD]
        ]

    def _pause(self) -> float:
        return max(LOOK_SECONDS, self._looked_at + self._rest - monotonic())

    async def _ask(self) -> None:
        if monotonic() - self._looked_at < self._rest:
            return  # whoever asks
        began, breaker, missed = monotonic(), self._replica.breaker, 0
        try:
            if breaker.is_unresponsive():
                raise NoAnswerError(breaker.why)
            answer = await self._answer(ANSWER_SECONDS)
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            self._take(self._read(answer.body), time())
            self.why, self.seen_at = "", began
        except (OSError, NoAnswerError, ValueError) as error:
            is_late, why = isinstance(error, TimeoutError), str(error) or type(error).__name__
            if is_late:
                why = f"there was no answer in {ANSWER_SECONDS:.0f} s"
            missed = self._missed + 1 if is_late and not breaker.is_unresponsive() else 0
            self.seen_at = self.seen_at if missed else None
            if self.seen:
                log.info("what %s has loaded cannot be seen: %s", self._replica.name, why, extra={"said": self._said})
            self.why = why
        finally:
            self._looked_at, self._missed = monotonic(), missed
            took = 0.0 if breaker.is_unresponsive() else self._looked_at - began
            self._rest = min(LONGEST_REST, RESTS * took * 2.0 ** max(0, missed - 1))

    def _take(self, index: LoadIndex, now: float) -> None:
        before, failed, untold = self.failed, dict[Key, LoadFailure](), dict[Key, float]()
        loaded = index.loaded
        missed = {
            key: ""
            for key in self._expected()
            if key[0] in loaded and int(key[1]) not in loaded[key[0]] and key not in index.loading
        }
        for key, why in (missed | dict(index.failed)).items():
            if not self._is_called(key[0]) or self._is_superseded(key, loaded):
                continue
            if not why:
                untold[key] = since = self._untold.get(key, now)
                if now - since < UNTOLD_SECONDS:
                    continue
            known = before.get(key)
            failed[key] = known if known and known.why == (why or UNTOLD) else LoadFailure(why or UNTOLD, now)
            if known is None:
                self._tell(logging.WARNING, key, "cannot be loaded", why or UNTOLD)
        # A poll that tries again may fail again.
        failed |= {key: before[key] for key in index.loading & before.keys()}
        for key in before.keys() - failed.keys():
            self._tell(logging.INFO, key, "is no longer one that cannot be loaded", "")
        before_loaded = self.loaded_since if self.seen_at is not None else dict.fromkeys(index.loaded)
        self.loaded_since = {model: before_loaded.get(model, now) for model in index.loaded}
        self.failed, self.loaded, self.loading, self._untold = failed, index.loaded, index.loading, untold

    def _is_superseded(self, key: Key, loaded: Mapping[str, tuple[int, ...]]) -> bool:
        """Tell whether a newer version is loaded, and no call names this one.

        Triton's index keeps a version that failed for as long as the model exists, even if its folder is removed. Its
        configurations have the version policy of when each version was loaded, so they do not show that either.
        """
        model, version = key
        newest = max(loaded.get(model, ()), default=0)
        return version.isdecimal() and int(version) < newest and key not in self._expected()

    def _tell(self, level: int, key: Key, what: str, why: str) -> None:
        (model, version), where = key, self._replica.name
        said = {**self._said, "replica": where, "model": model, "version": version or None, "why": why or None}
        log.log(level, "%s %s at %s%s", _named(*key), what, where, f": {why}" if why else "", extra={"said": said})


def _named(model: str, version: str) -> str:
    return f"{model} version {version}" if version else model
