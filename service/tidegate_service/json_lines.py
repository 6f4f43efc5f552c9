"""A log of one JSON object a line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """Formats records as JSON objects; what `extra={"said": …}` gives to a record becomes fields of its own."""

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
