"""Starts parts of the demo again when they end, as a kubelet does."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.local_plane.process import Parts, ProcessError, set_aside

PAUSE_SECONDS = 10.0  # After a part that did not start.


@dataclass
class Keeper:
    """Looks whether parts have ended, keeps their logs, and starts them again."""

    of: Parts
    report: Callable[[str], None]
    _due: dict[str, float] = field(default_factory=dict)  # When a part that did not start is tried again.

    def look(self) -> None:
        """Look once at all of them."""
        for name, process in self.of.parts.items():
            status = process.popen.poll()
            if status is None or time.monotonic() < self._due.get(name, 0.0):
                continue
            how = f"was killed ({signal.Signals(-status).name})" if status < 0 else f"ended with exit code {status}"
            self.report(f"{name} (pid {process.pid}) {how}. Its log: {set_aside(process.log)}")
            try:
                self.of.start_again(name)
            except ProcessError as error:
                self._due[name] = time.monotonic() + PAUSE_SECONDS
                why = str(error).splitlines()[0].rstrip(":")
                self.report(f"{name} did not start: {why}. The next try comes in {PAUSE_SECONDS:.0f} s")
            else:
                self.report(f"{name} runs again, as pid {self.of.parts[name].pid}")
