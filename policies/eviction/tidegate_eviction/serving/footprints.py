"""Footprints that were measured: what a model takes is learned once, and known after a restart of the policy."""

import json
import logging
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .files import write_whole

FILE = "footprints.json"
VERSION = 1
REMEMBERED = 5
"""Measurements of one content that count; the largest does, for a reading can only miss what others gave back."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Measurements:
    """What was measured of one content of a model."""

    stamp: str
    bytes: list[int] = field(default_factory=list)
    """The last measurements, the newest last."""
    load_seconds: float = 0.0
    """How long its last load took."""


class Footprints:
    """The measurements, in one file that is always whole."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.models: dict[str, Measurements] = {}
        self.lease_seconds: float | None = None
        """The longest lease that may live: a predecessor's, and one of earlier settings, until it has run out."""
        self._granted: float | None = None
        self._runs_out = -math.inf
        self._changed = False
        self._said = ""
        """Why it could not be written, as it was told."""

    def read(self) -> None:
        """Read what was learned before; a file that is no such file is told in the log, and learned anew."""
        try:
            said = json.loads(self.path.read_text("utf-8"))
            if said["version"] != VERSION:
                raise ValueError(f"it is of version {said['version']}")
            models = {str(name): _learned(each) for name, each in said["models"].items()}
            self.lease_seconds = float(said["lease_seconds"]) if said["lease_seconds"] is not None else None
            self.models = models
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("%s is not used, footprints are measured anew: %s", self.path, error)

    def learn(self, model: str, stamp: str, measured_bytes: int | None, load_seconds: float) -> None:
        """Take a load over; `changed` and `write` bring it to disk. A part that came along took no seconds (0)."""
        known = self.models.get(model)
        if known is None or known.stamp != stamp:
            if measured_bytes is None:
                return
            known = self.models[model] = Measurements(stamp)
        if measured_bytes is not None:
            known.bytes = [*known.bytes, measured_bytes][-REMEMBERED:]
        if load_seconds > 0:
            known.load_seconds = load_seconds
        self._changed = True

    def measured(self, model: str, stamp: str) -> int | None:
        """Return the bytes that this content takes; None where it was never measured."""
        known = self.models.get(model)
        return max(known.bytes) if known is not None and known.stamp == stamp and known.bytes else None

    def of_another_content(self, model: str) -> int | None:
        """Return the bytes that the last measured content of a model took: the best guess for a new version."""
        known = self.models.get(model)
        return max(known.bytes) if known is not None and known.bytes else None

    def load_seconds(self, model: str) -> float | None:
        """Return how long its last load took; None where nobody knows."""
        known = self.models.get(model)
        return known.load_seconds if known is not None and known.load_seconds > 0 else None

    def grants(self, lease_seconds: float, now: float) -> None:
        """Remember how long leases are, for who has to wait for their end; say it again and again (`now`: seconds).

        Leases of a predecessor, and of settings with longer ones, are remembered until the last of them has ended.
        """
        before = self.lease_seconds if self._granted is None else self._granted
        if before is not None and before > lease_seconds:
            self._runs_out = max(self._runs_out, now + before)
        self._granted = lease_seconds
        if self.lease_seconds is None or lease_seconds > self.lease_seconds or now >= self._runs_out:
            self._changed = self._changed or lease_seconds != self.lease_seconds
            self.lease_seconds = lease_seconds

    def changed(self) -> str | None:
        """Return what `write` is to write; None where nothing has changed since it was asked last."""
        if not self._changed:
            return None
        self._changed = False
        models = {name: asdict(each) for name, each in self.models.items()}
        return json.dumps({"version": VERSION, "lease_seconds": self.lease_seconds, "models": models})

    def write(self, text: str) -> None:
        """Write the file.

        A folder that cannot be written is told in the log, and it is tried again: until then, what was learned would
        be lost with this process. Blocks while it writes.
        """
        try:
            write_whole(self.path, text.encode())
        except OSError as error:
            self._changed = True
            if str(error) != self._said:
                self._said = str(error)
                log.warning("%s cannot be written, footprints are measured anew after a restart: %s", self.path, error)
        else:
            self._said = ""


def _learned(said: dict[str, object]) -> Measurements:
    stamp, numbers, seconds = said["stamp"], said["bytes"], said["load_seconds"]
    if not isinstance(stamp, str) or not isinstance(numbers, list) or not isinstance(seconds, int | float):
        raise ValueError("an entry is none")
    if not all(type(each) is int and each >= 0 for each in numbers):
        raise ValueError(f"its bytes are {numbers}")
    return Measurements(stamp, numbers[-REMEMBERED:], float(seconds))
