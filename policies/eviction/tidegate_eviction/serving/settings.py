"""The settings file, which is read again when it changes. If it is invalid, the last valid one stays in use."""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts.eviction import EvictionSettings
from tidegate_contracts.message import first_error
from tidegate_contracts.triton import MEMORY_MODEL

from ..files import KeptFile
from ..policies import registry

log = logging.getLogger(__name__)


class SettingsError(Exception):
    """The settings are invalid. The text is one line."""


def read(data: bytes) -> EvictionSettings:
    """Return the settings of a file, with a policy that can be used. Raises SettingsError."""
    try:
        settings = EvictionSettings.model_validate_json(data)
    except ValidationError as error:
        raise SettingsError(first_error(error)) from None
    try:
        registry.find(settings.policy)
    except ValueError as error:
        raise SettingsError(f"policy: {error}") from None
    counts = Counter(model.name for model in settings.models)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise SettingsError(f"models: listed twice: {', '.join(twice)}")
    if "\0" in settings.repository:
        raise SettingsError(f"repository: {settings.repository!r} is not a path")
    if MEMORY_MODEL in counts:
        raise SettingsError(f"models: {MEMORY_MODEL} is reserved for the policy's own model. Rename yours")
    return settings


class SettingsFile:
    """The settings file, which may be replaced at any time, and a copy of the last valid one, for the next start. `use`
    applies settings, or raises SettingsError."""

    def __init__(self, path: Path, copy: Path, use: Callable[[bytes], None]) -> None:
        self.path = path
        self._copy = KeptFile(copy, "a restart with an invalid settings file will fail")
        self._uncopied: bytes | None = None  # Settings in use that are not in the copy yet.
        self.last_error = ""
        self._use = use
        self._seen: bytes | str | None = None  # The content at the last read, or the error.

    def start(self) -> None:
        """Use the file, or the copy if the file is invalid. Raises SettingsError if both are."""
        self.look()
        if self.last_error:
            try:
                self._use(self._copy.path.read_bytes())
            except (OSError, SettingsError):
                raise SettingsError(f"{self.path}: {self.last_error}") from None

    def look(self) -> None:
        """Use the file if it has changed, and copy it. Log an invalid one, and keep the settings."""
        before = self._seen
        try:
            self._seen = self.path.read_bytes()
        except OSError as error:
            self._seen = error.strerror or str(error)
        if self._seen != before:
            self._take(self._seen)
        if self._uncopied is not None and self._copy.write(self._uncopied):
            self._uncopied = None

    def _take(self, found: bytes | str) -> None:
        try:
            if isinstance(found, str):
                raise SettingsError(f"the file cannot be read: {found}")
            self._use(found)
        except SettingsError as error:
            self.last_error = str(error)
            log.error("%s is invalid, so the last valid one stays in use: %s", self.path, error)
        else:
            self._uncopied = found
            self.last_error = ""
            log.info("%s was read", self.path)
