"""The log of calls, over HTTP and gRPC."""

import logging
from collections import defaultdict
from typing import Any

from tidegate_service.json_lines import LinesASecond

SUCCESS_EVERY = 0.2  # Seconds between two logged calls that went well: a line costs more than the call's own work.
FAILURES_A_SECOND = 50
"""Failed calls of each kind that are logged each second; the rest are counted, and the next line has their number. The
kinds are: without a grant, cancelled by its caller, refused, failed. So no caller can use up the lines of another kind.
"""
SLOW_A_SECOND = 20  # The same of calls that went well, and were slow or waited for their model.
CLIENT_LEFT = 499  # The status that is counted for a caller that has left before its answer (nginx's number).
SLOW_SECONDS = 1.0
WAITED_SECONDS = 0.1  # A shorter one is a question to a policy that has the model in memory.
log = logging.getLogger("tidegate_proxy.calls")


class CallLog:
    """Logs calls: of those that went well a few a second, of the others as many as a reader can bear.

    Each line says how many calls of which models have ended since the last one, its own included, so that none is lost.
    """

    def __init__(self) -> None:
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
        """Tell whether a call that ended now is to be logged, `of` a server's model: it took so many seconds, and
        `waited` for the model for so many of them. A `stranger` has no grant. `now` is monotonic seconds."""
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
        self._next_success = now + SUCCESS_EVERY
        return True

    def say(self, status: int, call: dict[str, Any]) -> None:
        """Log a call, of which None is not said; `status` is HTTP's, or what it would be."""
        said = {name: value for name, value in call.items() if value is not None}
        if left_out := sum(each.left_out().get("notLogged", 0) for each in self._failures.values()):
            said["notLogged"] = left_out
        self._say_calls(said)
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%s %s", call["protocol"], status, extra={"said": said})

    def flush(self, now: float) -> None:
        """Log the calls that no line has told of yet, unless one of them may tell of all soon."""
        if self._calls and now >= self._next_success:
            self._next_success = now + SUCCESS_EVERY
            said: dict[str, Any] = {}
            self._say_calls(said)
            log.info("calls", extra={"said": said})

    def _say_calls(self, said: dict[str, Any]) -> None:
        calls: dict[str, dict[str, int]] = {}
        for (server, model), number in self._calls.items():
            calls.setdefault(server, {})[model] = number
        if calls:
            said["calls"] = calls
            self._calls.clear()
