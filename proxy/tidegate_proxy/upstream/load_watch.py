"""Watches which models a replica has loaded by itself, which failed, and why. Calls do not depend on it."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, time
from typing import Final

from ..settings import Tunables
from .probe import PeriodicProbe
from .replica import Replica
from .request import NoAnswerError

LONGEST_REST = 1800.0
MOST_REPORTED = 100  # Failures of one replica in the metrics.
NO_REASON: Final = (
    "the inference server has not loaded it and reports no reason. It may be unable to read the configuration, or have "
    "stopped polling its repository. See its log"
)
Key = tuple[str, str]  # Model and version. The version is empty if none is known.
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadIndex:
    """A replica's report about its models, with readable reasons."""

    loaded: Mapping[str, tuple[int, ...]]  # The loaded versions of each model that has any.
    failed: Mapping[Key, str]  # Why each version could not be loaded, or an empty string if there is no reason.
    loading: frozenset[Key]


@dataclass(frozen=True, slots=True)
class IndexQuestion:
    """How to request the index from a kind of server, and how to parse it. `read` raises ValueError."""

    request: bytes  # With %b for the host name.
    read: Callable[[bytes], LoadIndex]


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a version is not loaded, and since when (Unix time) the proxy knows it."""

    why: str
    since: float


class LoadWatch(PeriodicProbe):
    """Queries one replica's index periodically, and logs changes."""

    def __init__(
        self,
        replica: Replica,
        question: IndexQuestion,
        host: str,
        fields: Mapping[str, str],
        is_called: Callable[[str], bool],
        expected: Callable[[], Collection[Key]],
        tunables: Tunables,
    ) -> None:
        """Start the queries, which run until the replica is closed. `fields` are the log's fields about the replica.

        `is_called` returns whether the routing table has a model. Other models in the repository are ignored.
        `expected` returns the versions that calls name. If their model is loaded, they must be loaded too.
        """
        super().__init__(replica, question.request % host.encode())
        self.loaded: Mapping[str, tuple[int, ...]] = {}  # The loaded versions of each model that has any.
        self.loaded_since: dict[str, float | None] = {}  # Unix time, or None if loaded before the first query.
        self.loading: frozenset[Key] = frozenset()
        self.failed: dict[Key, LoadFailure] = {}
        self.why = "it was not queried yet"  # Why the last query failed, or an empty string.
        self.seen_at: float | None = None
        """Monotonic time of the last successful query. None if its result is useless, for example after a restart."""
        self._read = question.read
        self._fields = dict(fields)
        self._unexplained: dict[Key, float] = {}
        self._is_called, self._expected = is_called, expected
        self.tunables = tunables
        self._queried_at = 0.0
        self._missed = 0  # Consecutive timeouts.
        self._rest = 0.0  # Minimum pause in seconds after the last query.

    @property
    def seen(self) -> bool:
        """Whether the last query succeeded."""
        return not self.why

    async def look(self) -> None:
        """Query the index now, unless that was just done. Simultaneous callers share one query."""
        if self._probing is not None or monotonic() - self._queried_at >= self.tunables.index_fresh_seconds:
            await self.ask(self.tunables.index_wait_seconds)

    def failure_lines(self) -> list[str]:
        """Return a line for each failed version, at most MOST_REPORTED."""
        return [
            f"{_named(*key)} cannot be loaded at {self._replica.name}"
            f" (known since {datetime.fromtimestamp(failure.since, UTC):%Y-%m-%d %H:%M:%S} UTC): {failure.why}"
            for key, failure in [*self.failed.items()][:MOST_REPORTED]
        ]

    def _pause(self) -> float:
        return max(self.tunables.index_seconds, self._queried_at + self._rest - monotonic())

    async def _probe(self) -> None:
        if monotonic() - self._queried_at < self._rest:
            return  # even if someone is waiting
        began, breaker, missed, tunables = monotonic(), self._replica.breaker, 0, self.tunables
        try:
            if breaker.is_unresponsive():
                raise NoAnswerError(breaker.why)
            answer = await self._answer(tunables.index_timeout_seconds)
            if answer.status != 200:
                raise ValueError(f"it returned HTTP {answer.status}")
            self._take(self._read(answer.body), time())
            self.why, self.seen_at = "", began
        except (OSError, NoAnswerError, ValueError) as error:
            is_late, why = isinstance(error, TimeoutError), str(error) or type(error).__name__
            if is_late:
                why = f"no response within {tunables.index_timeout_seconds:.0f} s"
            missed = self._missed + 1 if is_late and not breaker.is_unresponsive() else 0
            self.seen_at = self.seen_at if missed else None
            if self.seen:
                log.info("cannot list the models of %s: %s", self._replica.name, why, extra={"data": self._fields})
            self.why = why
        finally:
            self._queried_at, self._missed = monotonic(), missed
            took = 0.0 if breaker.is_unresponsive() else self._queried_at - began
            self._rest = min(LONGEST_REST, tunables.index_rests * took * 2.0 ** max(0, missed - 1))

    def _take(self, index: LoadIndex, now: float) -> None:
        before, failed, unexplained = self.failed, dict[Key, LoadFailure](), dict[Key, float]()
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
                unexplained[key] = since = self._unexplained.get(key, now)
                if now - since < self.tunables.unexplained_seconds:
                    continue
            known = before.get(key)
            failed[key] = known if known and known.why == (why or NO_REASON) else LoadFailure(why or NO_REASON, now)
            if known is None:
                self._report(logging.WARNING, key, "cannot be loaded", why or NO_REASON)
        # A version that the server is loading again may fail again.
        failed |= {key: before[key] for key in index.loading & before.keys()}
        for key in before.keys() - failed.keys():
            self._report(logging.INFO, key, "no longer fails to load", "")
        before_loaded = self.loaded_since if self.seen_at is not None else dict.fromkeys(index.loaded)
        self.loaded_since = {model: before_loaded.get(model, now) for model in index.loaded}
        self.failed, self.loaded, self.loading, self._unexplained = failed, index.loaded, index.loading, unexplained

    def _is_superseded(self, key: Key, loaded: Mapping[str, tuple[int, ...]]) -> bool:
        """Return whether a newer version is loaded and no call names this one. Triton's index keeps failed versions as
        long as their model, even removed ones, and its configurations do not show that."""
        model, version = key
        newest = max(loaded.get(model, ()), default=0)
        return version.isdecimal() and int(version) < newest and key not in self._expected()

    def _report(self, level: int, key: Key, what: str, why: str) -> None:
        (model, version), where = key, self._replica.name
        fields = {**self._fields, "replica": where, "model": model, "version": version or None, "why": why or None}
        log.log(level, "%s %s at %s%s", _named(*key), what, where, f": {why}" if why else "", extra={"data": fields})


def _named(model: str, version: str) -> str:
    return f"{model} version {version}" if version else model
