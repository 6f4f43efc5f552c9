"""What the kubelet does with containers that end: they are started again, at once, and then after longer pauses."""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab.local_plane.process import Process, ProcessError, set_aside

FIRST_SECONDS, LONGEST_SECONDS, FORGIVEN_SECONDS = 10.0, 300.0, 600.0
"""The kubelet's: the second pause (before the first time there is none), the longest, and after how long a run the
next one is the first again.
"""


class Kept(Protocol):
    """What consists of parts that can be started again."""

    @property
    def parts(self) -> Mapping[str, Process]:
        """The process that each part is now, by the part's name."""

    def start_again(self, part: str) -> None:
        """Start a part that has ended, in its old place. Raises ProcessError."""


@dataclass
class _Past:
    """What is remembered of a part."""

    began: float
    pause: float = 0.0  # Seconds to wait when it ends.
    due: float | None = None  # When it is to be started again; None while it runs.


class Keeper:
    """Looks whether parts have ended, tells it, keeps their logs, and starts them again; `now` is in seconds."""

    def __init__(self, of: Kept, tell: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._of, self._tell, self._now = of, tell, now
        self._pasts = {name: _Past(now()) for name in of.parts}

    def look(self) -> None:
        """Look once at all of them."""
        for name, process in self._of.parts.items():
            past, status = self._pasts[name], process.popen.poll()
            if past.due is None and status is not None:
                ran = self._now() - past.began
                if ran > FORGIVEN_SECONDS:
                    past.pause = 0.0
                self._wait(past, f"{name} (pid {process.pid}) {_how(status)} after {ran:.0f} s", process.log)
            if past.due is not None and self._now() >= past.due:
                self._start(name, past, process.log)

    def _start(self, name: str, past: _Past, log: Path) -> None:
        try:
            self._of.start_again(name)
        except ProcessError as error:
            self._wait(past, f"{name} did not start: {str(error).splitlines()[0].rstrip(':')}", log)
        else:
            past.began, past.due = self._now(), None
            self._tell(f"{name} runs again, as pid {self._of.parts[name].pid}")

    def _wait(self, past: _Past, what: str, log: Path) -> None:
        when = f"in {past.pause:.0f} s (back-off)" if past.pause else "now"
        self._tell(f"{what}; it is started again {when}. Its log: {set_aside(log)}")
        past.due = self._now() + past.pause
        past.pause = min(max(FIRST_SECONDS, 2 * past.pause), LONGEST_SECONDS)


def _how(status: int) -> str:
    return f"was killed ({signal.Signals(-status).name})" if status < 0 else f"ended with exit code {status}"
