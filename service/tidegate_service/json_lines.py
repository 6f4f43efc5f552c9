"""A log of one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class LinesASecond:
    """Which lines of a kind are logged, where there may be more than a reader can bear; the others are counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._second = self._said = self._unsaid = 0

    def wants(self, now: float) -> bool:
        """Tell whether a line is to be logged at this monotonic time, in seconds."""
        if int(now) != self._second:
            self._second, self._said = int(now), 0
        self._said += 1
        self._unsaid += self._said > self._most
        return self._said <= self._most

    def left_out(self) -> dict[str, int]:
        """Return what the next line says of those that were not logged since the last one."""
        unsaid, self._unsaid = self._unsaid, 0
        return {"notLogged": unsaid} if unsaid else {}


class JsonLines(logging.Formatter):
    """Formats records as JSON objects; what `extra={"said": …}` gives to a record becomes fields of its own, which are
    those of `tidegate_contracts.log_fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON, with the traceback of an exception in it."""
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= getattr(record, "said", {})
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str, separators=(",", ":"))


def configure(level: str) -> None:
    """Send everything that is logged, by libraries too, to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
