"""What all connections of a proxy share."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from tidegate_contracts.proxy_settings import ProxySettings

from .access.authorizer import Authorizer
from .concurrency import ConcurrencyLimiter, RoundRobin
from .memory import Memory, process_memory
from .telemetry.meter import Meter
from .telemetry.records import CallLog
from .telemetry.traces import Tracer
from .upstream.replica import Replica

BULK_READS_AT_ONCE = 4  # Connections that are read in one turn of the loop, of those over which much comes at once.
SWEEP_SECONDS = 0.1  # Seconds between two looks for calls past their deadline: that is how late a deadline can be.


class OpenCall(Protocol):
    """A call that is under way; `deadline` is in monotonic seconds."""

    @property
    def deadline(self) -> float:
        """When the call's time is up."""

    @property
    def replica(self) -> Replica | None:
        """Where it is in flight."""

    def expire(self) -> None:
        """End the call: its deadline has passed."""

    def replica_silent(self) -> None:
        """Learn that the replica where it is in flight answers nothing any more."""


@dataclass
class SharedState:
    """Settings, the authorizer, limits, counts, and every call that is under way."""

    settings: ProxySettings
    authorizer: Authorizer
    meter: Meter
    call_log: CallLog = field(default_factory=CallLog)
    open_calls: set[OpenCall] = field(default_factory=set)
    draining: bool = False  # Whether the proxy is about to end: callers are asked to open a new connection.

    def __post_init__(self) -> None:
        settings = self.settings
        self.limiter = ConcurrencyLimiter(settings.concurrency)
        self.tracer: Tracer | None = None  # Makes spans, where they are asked for.
        if settings.otlp_endpoint is not None:
            self.tracer = Tracer(settings.otlp_endpoint, settings.trace_percent, settings.environment)
        self.body_limit_bytes = settings.body_limit_bytes  # Calls ask for both, and there that takes longer.
        self.call_seconds = float(settings.request_timeout_seconds)  # How long a call may take.
        self.memory = Memory(settings.memory_bytes or process_memory())
        self.bulk_reads = RoundRobin(BULK_READS_AT_ONCE)  # Connections over which much comes at once are read here.
        self.reader = ThreadPoolExecutor(1, "reader")  # Long bodies that say what is asked are read here.
        self.long_work = RoundRobin()  # Compressed bodies, and very many frames at once, are read here.

    def replica_silent(self, replica: Replica) -> None:
        """Tell the calls at a replica that it answers nothing any more."""
        for call in list(self.open_calls):
            if call.replica is replica:
                call.replica_silent()

    async def sweep(self) -> None:
        """End the calls that are past their deadline, and have all calls logged, for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = monotonic()
            for call in [call for call in self.open_calls if call.deadline < now]:
                call.expire()
            self.call_log.flush(now)
