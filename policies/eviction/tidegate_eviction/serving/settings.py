"""The settings file: read, checked, and read again when it changes; a bad one is refused, the last good one stays."""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import ValidationError
from tidegate_contracts.eviction import EvictionSettings, WarmWindow

from ..triton.memory import MODEL

LOOK_SECONDS = 1.0
"""Seconds between two looks at the file."""
log = logging.getLogger(__name__)


class SettingsError(Exception):
    """Says what is wrong with the settings, in one line."""


def parse(data: bytes, policies: Iterable[str]) -> EvictionSettings:
    """Return the settings of a file; raises SettingsError. `policies` are the names that there are."""
    try:
        settings = EvictionSettings.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise SettingsError(f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}{more}") from None
    known = sorted(policies)
    if settings.policy not in known:
        raise SettingsError(f"policy: there is no {settings.policy!r}, only {', '.join(known)}")
    names = [model.name for model in settings.models]
    if twice := {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set():
        raise SettingsError(f"models: {', '.join(sorted(twice))} is there twice")
    if "\0" in settings.repository:
        raise SettingsError(f"repository: {settings.repository!r} can be no path")
    if MODEL in names:
        raise SettingsError(f"models: {MODEL} is how the policy calls its own model, so call yours something else")
    for window in settings.warm_windows:
        opening(window, datetime(2026, 1, 1, tzinfo=UTC))
    return settings


def opening(window: WarmWindow, now: datetime) -> tuple[datetime, datetime]:
    """Return when a window opened last and opens next, seen from `now` (aware); raises SettingsError."""
    try:
        here = now.astimezone(ZoneInfo(window.time_zone))
        # The one before looks strictly back: a window that opens right now has opened.
        last = next(CronSim(window.opens, here + timedelta(seconds=1), reverse=True))
        return last, next(CronSim(window.opens, here))
    except (CronSimError, StopIteration) as error:
        raise SettingsError(
            f"warmWindows.{window.name}: {window.opens!r} is no cron expression of five fields: {error}"
        ) from None
    except (KeyError, ValueError, OSError):
        raise SettingsError(f"warmWindows.{window.name}: {window.time_zone!r} is no IANA time zone") from None


def seconds_open(window: WarmWindow, now: datetime) -> list[tuple[float, float]]:
    """Return when a window is open, as seconds from `now`: of the opening that lasts, if one does, and of the next."""
    last, following = opening(window, now)
    spans = []
    for opens in (last, following):
        begin = (opens - now).total_seconds()
        if begin + window.duration_seconds > 0:
            spans.append((begin, begin + window.duration_seconds))
    return spans


class Followed:
    """A file that others may replace at any time; a ConfigMap swaps its whole folder by a symbolic link."""

    def __init__(self, path: Path, use: Callable[[bytes], None]) -> None:
        self.path = path
        self.generation = 0
        """How many times it was taken over."""
        self.failures = 0
        self.last_error = ""
        self._use = use
        self._seen: object = None
        self._is_unread = False
        """Whether it could not be read: a disk may fail, or a process have too many files open, and then not."""

    def load(self) -> None:
        """Read it and use it; raises SettingsError, and then what was in use stays in use."""
        self._seen = self._fingerprint()
        self._is_unread = True
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise SettingsError(f"it cannot be read: {error.strerror}") from None
        self._is_unread = False
        self._use(data)
        self.generation += 1
        self.last_error = ""

    def look(self) -> None:
        """Load it if it has changed; a bad one is told in the log and in the metrics, and changes nothing else."""
        is_same = self._fingerprint() == self._seen
        if is_same and not self._is_unread:
            return
        try:
            self.load()
        except SettingsError as error:
            if not is_same or str(error) != self.last_error:
                self.refused(error)
        else:
            log.info("%s was read again", self.path)

    def refused(self, error: SettingsError) -> None:
        """Remember, and log, that the file is not in use."""
        self.failures += 1
        self.last_error = str(error)
        log.error("%s was refused, the last good one stays: %s", self.path, error)

    def _fingerprint(self) -> object:
        try:
            stat = self.path.stat()
        except OSError as error:
            return error.errno
        return stat.st_mtime_ns, stat.st_ino, stat.st_size
