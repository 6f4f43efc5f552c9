"""What is told of a call when it has ended: the same in the log and in traces, over HTTP and gRPC."""

from dataclasses import dataclass
from typing import Any, Literal


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
        call = {
            "protocol": self.protocol,
            "requestId": self.request_id,
            "verb": self.verb,
            "server": self.server,
            "model": self.model,
            "version": self.version,
            "status": status,
            "problem": self.problem,
            "principal": self.principal,
            "replica": self.replica,
            "seconds": round(self.seconds, 6),
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
        }
        return {name: value for name, value in call.items() if value is not None}

    def span_fields(self) -> dict[str, Any]:
        """Return the attributes of its span that are the proxy's own."""
        return {
            "error.type": self.problem,
            "tidegate.server": self.server,
            "tidegate.model": self.model,
            "tidegate.version": self.version,
            "tidegate.replica": self.replica,
            "tidegate.request_id": self.request_id,
        }
