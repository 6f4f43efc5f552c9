"""A log with one JSON object per line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class LinesASecond:
    """Limits the lines of a kind to as many as a reader can follow. The others are counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._second = self._logged = self._omitted = 0

    def wants(self, now: float) -> bool:
        """Return whether to log a line at this monotonic time, in seconds."""
        if int(now) != self._second:
            self._second, self._logged = int(now), 0
        self._logged += 1
        self._omitted += self._logged > self._most
        return self._logged <= self._most

    def left_out(self) -> dict[str, int]:
        """Return the field of the next line for the lines that were omitted since the last one."""
        omitted, self._omitted = self._omitted, 0
        return {"notLogged": omitted} if omitted else {}


class JsonLines(logging.Formatter):
    """Formats records as JSON. `extra={"data": …}` becomes separate fields (`tidegate_contracts.log_fields`)."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= getattr(record, "data", {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str, separators=(",", ":"))


def configure(level: str) -> None:
    """Write the logs of all code, with libraries, to standard error in this form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
