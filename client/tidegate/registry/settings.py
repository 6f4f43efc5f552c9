"""MLflow's settings for this client's own calls. They apply while a call runs and are restored after the last one.

MLflow reads them from the environment of the process, which may be the user's notebook.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

_TIMEOUT: Final = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_TIMEOUT_SECONDS: Final = 120  # MLflow's default
_OURS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # It would send requests to MLflow's makers.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # Standard output is for results.
    # Multipart transfers would hold hundreds of MB in memory and bypass the server.
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Each applies unless the user has set it."""


class Settings:
    """The settings in one environment. Overlapping calls share them."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._lock = Lock()
        self._calls: list[float] = []  # additional seconds of each running call
        self._before: dict[str, str | None] = {}

    @contextmanager
    def during(self, longer: float = 0) -> Iterator[None]:
        """Apply them in a block, with a timeout that is `longer` by so many seconds."""
        with self._lock:
            if not self._calls:
                self._before = {name: self._environ.get(name) for name in (*_OURS, _TIMEOUT)}
            self._calls.append(longer)
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(longer)
                self._apply()

    def _apply(self) -> None:
        wanted = dict(self._before)
        if self._calls:
            wanted |= {name: value for name, value in _OURS.items() if self._before[name] is None}
        if seconds := max(self._calls, default=0):
            text = self._before[_TIMEOUT] or ""
            usual = int(text) if text.isdecimal() else _TIMEOUT_SECONDS
            wanted[_TIMEOUT] = str(max(usual, int(_TIMEOUT_SECONDS + seconds)))
        for name, value in wanted.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value


settings: Final = Settings(os.environ).during
