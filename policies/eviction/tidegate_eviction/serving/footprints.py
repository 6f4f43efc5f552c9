"""Measured footprints, kept over restarts of the policy."""

import asyncio
import logging
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from ..files import KeptFile

FILE = "footprints.json"
REMEMBERED = 5
"""The number of measurements of one content. The largest counts, because memory freed by others can hide growth."""
log = logging.getLogger(__name__)


class Measurements(BaseModel):
    """The measurements of a model's last loaded content."""

    model_config = ConfigDict(strict=True)
    stamp: str
    bytes: list[NonNegativeInt] = []
    """Bytes, the newest last."""
    load_seconds: float = 0.0


class _File(BaseModel):
    version: Literal[1] = 1
    models: dict[str, Measurements]


class Footprints:
    """The measurements, in one file that is replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._file = KeptFile(folder / FILE, "footprints will be measured again after a restart")
        self.models: dict[str, Measurements] = {}
        self._changed = False

    def read(self) -> None:
        """Read the file. If it is invalid, log that and start without measurements."""
        try:
            stored = _File.model_validate_json(self._file.path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValidationError) as error:
            log.warning("%s cannot be used, so footprints are measured again: %s", self._file.path, error)
        else:
            self.models = stored.models

    def learn(self, model: str, stamp: str, measured_bytes: int | None, load_seconds: float) -> None:
        """Note a load. `keep` writes it to disk. A part of an ensemble has no seconds (0)."""
        known = self.models.get(model)
        if known is None or known.stamp != stamp:
            if measured_bytes is None:
                return
            known = self.models[model] = Measurements(stamp=stamp)
        if measured_bytes is not None:
            known.bytes = [*known.bytes, measured_bytes][-REMEMBERED:]
        if load_seconds > 0:
            known.load_seconds = load_seconds
        self._changed = True

    async def keep(self) -> None:
        """Write the file if anything has changed. After a failure, the next call tries again."""
        if self._changed:
            self._changed = False
            stored = _File(models=self.models)
            if not await asyncio.to_thread(self._file.write, stored.model_dump_json().encode()):
                self._changed = True
