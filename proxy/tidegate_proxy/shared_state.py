"""The state that all connections of a proxy share."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from tidegate_contracts.proxy_settings import ProxySettings

from .access.authorizer import Authorizer
from .concurrency import ConcurrencyLimiter, RoundRobin
from .memory import Memory, process_memory
from .settings import Tunables
from .telemetry.meter import Meter
from .telemetry.records import CallLog
from .telemetry.traces import Tracer
from .upstream.replica import Replica

BULK_READS_AT_ONCE = 4  # Connections with much data that are read in one turn of the loop.
SWEEP_SECONDS = 0.1  # Seconds between two checks for calls past their deadline: the most by which one ends late.


class OpenCall(Protocol):
    """A call in progress. `deadline` is in monotonic seconds."""

    @property
    def deadline(self) -> float:
        """When the call's time ends."""

    @property
    def replica(self) -> Replica | None:
        """The replica at which it is in flight."""

    def expire(self) -> None:
        """End the call, because its deadline has passed."""

    def replica_silent(self) -> None:
        """Handle that the call's replica has stopped responding."""


@dataclass
class SharedState:
    """Settings, the authorizer, limits, counts, and every call in progress."""

    settings: ProxySettings
    authorizer: Authorizer
    meter: Meter
    tunables: Tunables
    call_log: CallLog = field(default_factory=CallLog)
    open_calls: set[OpenCall] = field(default_factory=set)
    draining: bool = False  # Whether the proxy is stopping: responses make callers open a new connection.

    def __post_init__(self) -> None:
        settings = self.settings
        self.limiter = ConcurrencyLimiter(settings.concurrency)
        self.tracer: Tracer | None = None  # Makes spans, if they are collected.
        if settings.otlp_endpoint is not None:
            self.tracer = Tracer(settings.otlp_endpoint, settings.trace_percent, settings.environment, self.tunables)
        self.body_limit_bytes = settings.body_limit_bytes  # Calls read both, and reading a setting takes longer.
        self.call_seconds = float(settings.request_timeout_seconds)  # Timeout of a call.
        self.memory = Memory(settings.memory_bytes or process_memory())
        self.bulk_reads = RoundRobin(BULK_READS_AT_ONCE)  # Reads connections with much data.
        self.reader = ThreadPoolExecutor(1, "reader")  # Reads long bodies that decide what a call requests.
        self.long_work = RoundRobin()  # Reads compressed bodies, and very many frames at once.

    def replica_silent(self, replica: Replica) -> None:
        """Notify the calls at a replica that it has stopped responding."""
        for call in list(self.open_calls):
            if call.replica is replica:
                call.replica_silent()

    async def sweep(self) -> None:
        """End the calls past their deadline and flush the log of calls, for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = monotonic()
            for call in [call for call in self.open_calls if call.deadline < now]:
                call.expire()
            self.call_log.flush(now)
