"""The log of calls over HTTP and gRPC."""

import logging
from collections import defaultdict
from typing import Any

from tidegate_service.json_lines import LinesASecond

SUCCESS_EVERY = 0.2  # Seconds between two logged successful calls: a line costs more than the call's own work.
FAILURES_A_SECOND = 50
"""Logged failed calls of each kind per second. The rest are counted, and the next line has their number. The kinds are:
without a grant, cancelled by its caller, refused, failed. So no caller can use up the lines of another kind."""
SLOW_A_SECOND = 20  # The same for successful calls that were slow or waited for their model.
CLIENT_LEFT = 499  # The status of a call whose caller has left before the response (nginx's number).
SLOW_SECONDS = 1.0
WAITED_SECONDS = 0.1  # A shorter wait is a request to a policy that has the model in memory.
log = logging.getLogger("tidegate_proxy.calls")


class CallLog:
    """Logs a few successful calls a second, and as many others as a reader can follow. Each line has the number of
    calls of each model since the last line, its own included, so that none is lost."""

    def __init__(self, success_every: float = SUCCESS_EVERY) -> None:
        self._success_every = success_every
        self._next_success = 0.0
        self._failures = {kind: LinesASecond(FAILURES_A_SECOND) for kind in ("stranger", "left", "refused", "failed")}
        self._slow = LinesASecond(SLOW_A_SECOND)
        self._calls: dict[tuple[str, str], int] = defaultdict(int)  # By server and model, since the last line.

    def wants(
        self,
        status: int,
        now: float,
        of: tuple[str, str] | None = None,
        seconds: float = 0.0,
        waited: float = 0.0,
        stranger: bool = False,
    ) -> bool:
        """Return whether to log a call that ended `now` (monotonic seconds), `of` a server and model. It took `seconds`
        and `waited` for its model for so many of them. A `stranger` has no grant."""
        if of is not None:
            self._calls[of] += 1
        if status >= 400:
            kind = (
                "stranger" if stranger else "left" if status == CLIENT_LEFT else "refused" if status < 500 else "failed"
            )
            return self._failures[kind].wants(now)
        if (
            seconds >= WAITED_SECONDS
            and (seconds >= SLOW_SECONDS or waited >= WAITED_SECONDS)
            and self._slow.wants(now)
        ):
            return True
        if now < self._next_success:
            return False
        self._next_success = now + self._success_every
        return True

    def write(self, status: int, call: dict[str, Any]) -> None:
        """Log a call without its fields that are None. `status` is HTTP's, or the equivalent one."""
        fields = {name: value for name, value in call.items() if value is not None}
        if left_out := sum(each.left_out().get("notLogged", 0) for each in self._failures.values()):
            fields["notLogged"] = left_out
        self._add_calls(fields)
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%s %s", call["protocol"], status, extra={"data": fields})

    def flush(self, now: float) -> None:
        """Log the calls that are in no line yet, unless one will soon include them."""
        if self._calls and now >= self._next_success:
            self._next_success = now + self._success_every
            fields: dict[str, Any] = {}
            self._add_calls(fields)
            log.info("calls", extra={"data": fields})

    def _add_calls(self, fields: dict[str, Any]) -> None:
        calls: dict[str, dict[str, int]] = {}
        for (server, model), number in self._calls.items():
            calls.setdefault(server, {})[model] = number
        if calls:
            fields["calls"] = calls
            self._calls.clear()
