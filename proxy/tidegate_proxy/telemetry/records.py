"""The log of calls, over HTTP and gRPC."""

import logging
from typing import Any

SUCCESS_EVERY = 0.2  # Seconds between two logged calls that went well: a line costs more than the call's own work.
FAILURES_A_SECOND = 50
"""Calls that ended badly that are logged each second; the rest are counted, and their number is in the next line."""
log = logging.getLogger("tidegate_proxy.calls")


class CallLog:
    """Logs calls: of those that went well a few a second, of the others as many as a reader can bear."""

    _next_success = 0.0
    _second = 0
    _failures = 0
    _unsaid = 0

    def wants(self, status: int, now: float) -> bool:
        """Tell whether a call that ended now is to be logged. `now` is monotonic seconds."""
        if status < 400:
            if now < self._next_success:
                return False
            self._next_success = now + SUCCESS_EVERY
            return True
        if int(now) != self._second:
            self._second, self._failures = int(now), 0
        self._failures += 1
        if self._failures > FAILURES_A_SECOND:
            self._unsaid += 1
            return False
        return True

    def say(self, status: int, call: dict[str, Any]) -> None:
        """Log a call, of which None is not said; `status` is HTTP's, or what it would be."""
        said = {name: value for name, value in call.items() if value is not None}
        if self._unsaid:
            said["notLogged"], self._unsaid = self._unsaid, 0
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%s %s", call["protocol"], status, extra={"said": said})
