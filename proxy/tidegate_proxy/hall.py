"""What all connections of a proxy share."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from tidegate_contracts.proxy_settings import ProxySettings

from .access.gate import Gate
from .mirror.copies import Copies
from .places import Places, Room
from .routes import Route
from .seeing.logs import CallLog
from .seeing.meter import Meter
from .sequences import learn

if TYPE_CHECKING:
    from .seeing.traces import Tracer

GATHERED_BODIES = 4
"""Bodies of the longest kind that are held at once, by requests whose body must be whole before it is sent on."""
SWEEP_SECONDS = 0.1
"""Seconds between two looks for calls whose time is up: that is how late a deadline can be."""


class Expiring:
    """Something whose time can be up; `deadline` is in the loop's seconds."""

    deadline: float

    def expire(self) -> None:
        """End it: its time is up."""
        raise NotImplementedError


@dataclass
class Hall:
    """The gate, the places, the meter, and every exchange that is under way."""

    settings: ProxySettings
    gate: Gate
    meter: Meter
    places: Places
    call_log: CallLog = field(default_factory=CallLog)
    under_way: set[Expiring] = field(default_factory=set)
    tracer: "Tracer | None" = None
    """Makes spans, where they are asked for."""
    leaving: bool = False
    """Whether the proxy is about to end: callers are told to connect anew."""

    def __post_init__(self) -> None:
        self.gathered = Room(self.settings.body_limit_bytes * GATHERED_BODIES)
        self.copies = Copies(self.meter, float(self.settings.request_timeout_seconds), self._keeps_sequences)

    async def _keeps_sequences(self, route: Route) -> bool | None:
        if route.sequential is None:
            await learn(route, self.settings.connect_timeout_seconds)
        return route.sequential

    async def sweep(self) -> None:
        """End what is past its deadline, for ever."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = monotonic()
            for each in [one for one in self.under_way if one.deadline < now]:
                each.expire()
