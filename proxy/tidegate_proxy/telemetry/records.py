"""What is told of a call when it has ended: the same in the log and in traces, over HTTP and gRPC."""

import logging
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic.alias_generators import to_camel


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Of one call; None is what never was known."""

    protocol: Literal["http", "grpc"]
    request_id: str
    verb: str
    server: str | None
    model: str | None
    version: str | None
    problem: str | None
    """The word of the problem that ended it."""
    principal: str | None
    replica: str | None
    seconds: float
    bytes_in: int
    bytes_out: int

    def log_fields(self, status: int) -> dict[str, Any]:
        """Return the fields of its line in the log; `status` is HTTP's or gRPC's."""
        said = {"protocol": self.protocol, "status": status} | asdict(self) | {"seconds": round(self.seconds, 6)}
        return {to_camel(name): value for name, value in said.items() if value is not None}

    def span_fields(self) -> dict[str, Any]:
        """Return the attributes of its span that are the proxy's own."""
        own = ("server", "model", "version", "replica", "request_id")
        return {"error.type": self.problem} | {f"tidegate.{name}": getattr(self, name) for name in own}


SUCCESS_EVERY = 0.2
"""Seconds between two calls that went well and are logged: a line costs more than the call's own work."""
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
        """Log a call."""
        if self._unsaid:
            call["notLogged"], self._unsaid = self._unsaid, 0
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%s %s", call.get("protocol"), status, extra={"said": call})
