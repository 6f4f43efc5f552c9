"""MLflow's settings for this client's own calls: in force while one of them runs, and taken back after the last.

MLflow reads them from the environment of the process, which is the user's, as in a notebook.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

_TIMEOUT: Final = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_TIMEOUT_SECONDS: Final = 120  # MLflow's default.
_OURS: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would call a server of MLflow's makers
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # standard output is for results
    # In parts, MLflow would hold hundreds of MB of a file in memory, and go to the store by itself.
    "MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD": "false",
    "MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Each counts unless the user has set it."""
_lock: Final = Lock()
_longer: Final[list[float]] = []  # of each call that runs, the seconds that its answer may take beyond the default
_before: Final[dict[str, str | None]] = {}


@contextmanager
def settings(longer: float = 0) -> Iterator[None]:
    """Have MLflow's settings for a block; its answers may take so many seconds longer than usual."""
    with _lock:
        if not _longer:
            _before.update({name: os.environ.get(name) for name in (*_OURS, _TIMEOUT)})
        _longer.append(longer)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _longer.remove(longer)
            _apply()


def _apply() -> None:
    wanted = dict(_before)
    if _longer:
        wanted |= {name: value for name, value in _OURS.items() if _before[name] is None}
    if seconds := max(_longer, default=0):
        wanted[_TIMEOUT] = str(max(int(_before[_TIMEOUT] or _TIMEOUT_SECONDS), int(_TIMEOUT_SECONDS + seconds)))
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
