"""MLflow's settings for this client's own calls: in force while one of them runs, and taken back after the last.

MLflow reads them from the environment of the process, which is the user's, as in a notebook.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

_TIMEOUT: Final = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_TIMEOUT_SECONDS: Final = 120  # MLflow's default.
_RETRIES: Final = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_OURS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would call a server of MLflow's makers
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # standard output is for results
    # In parts, MLflow would hold hundreds of MB of a file in memory, and go to the store by itself.
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Each counts unless the user has set it."""


class Settings:
    """The settings in one environment, which calls that overlap share."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._lock = Lock()
        self._calls: list[tuple[float, bool]] = []  # that run: the seconds that each may take longer; if it is hasty
        self._before: dict[str, str | None] = {}

    @contextmanager
    def during(self, longer: float = 0, *, hasty: bool = False) -> Iterator[None]:
        """Set them for a block.

        Answers may take so many seconds `longer` than usual. A `hasty` call is tried twice at the most.
        """
        with self._lock:
            if not self._calls:
                self._before = {name: self._environ.get(name) for name in (*_OURS, _TIMEOUT, _RETRIES)}
            self._calls.append((longer, hasty))
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove((longer, hasty))
                self._apply()

    def _apply(self) -> None:
        wanted = dict(self._before)
        if self._calls:
            wanted |= {name: value for name, value in _OURS.items() if self._before[name] is None}
        if any(hasty for _, hasty in self._calls):
            wanted[_RETRIES] = str(min(self._number(_RETRIES, 1), 1))
        if seconds := max((longer for longer, _ in self._calls), default=0):
            wanted[_TIMEOUT] = str(max(self._number(_TIMEOUT, _TIMEOUT_SECONDS), int(_TIMEOUT_SECONDS + seconds)))
        for name, value in wanted.items():
            if value is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = value

    def _number(self, name: str, default: int) -> int:
        text = self._before[name] or ""
        return int(text) if text.isdecimal() else default


settings: Final = Settings(os.environ).during
