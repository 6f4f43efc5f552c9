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
_RETRIES: Final = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_calls: Final[list[tuple[float, bool]]] = []  # that run: the seconds that each may take longer, and whether it is hasty
_before: Final[dict[str, str | None]] = {}


@contextmanager
def settings(longer: float = 0, *, hasty: bool = False) -> Iterator[None]:
    """Have MLflow's settings for a block.

    Answers may take so many seconds `longer` than usual. A `hasty` call is tried twice at the most.
    """
    with _lock:
        if not _calls:
            _before.update({name: os.environ.get(name) for name in (*_OURS, _TIMEOUT, _RETRIES)})
        _calls.append((longer, hasty))
        _apply()
    try:
        yield
    finally:
        with _lock:
            _calls.remove((longer, hasty))
            _apply()


def _apply() -> None:
    wanted = dict(_before)
    if _calls:
        wanted |= {name: value for name, value in _OURS.items() if _before[name] is None}
    if any(hasty for _, hasty in _calls):
        wanted[_RETRIES] = str(min(_number(_RETRIES, 1), 1))
    if seconds := max((longer for longer, _ in _calls), default=0):
        wanted[_TIMEOUT] = str(max(_number(_TIMEOUT, _TIMEOUT_SECONDS), int(_TIMEOUT_SECONDS + seconds)))
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _number(name: str, default: int) -> int:
    text = _before[name] or ""
    return int(text) if text.isdecimal() else default
