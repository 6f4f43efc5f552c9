"""What all connections of a proxy share."""

import asyncio
import itertools
import os
import re
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from tidegate_contracts.proxy_settings import ProxySettings

from ..access.gate import Gate
from ..mirror.copies import Copies
from ..routes import Route
from ..seeing.logs import CallLog
from ..seeing.meter import Meter
from .places import Places
from .sequences import learn

if TYPE_CHECKING:
    from ..seeing.traces import Tracer

SWEEP_SECONDS = 0.1
"""Seconds between two looks for calls whose time is up: that is how late a deadline can be."""
_RUN = os.urandom(5).hex().encode()
_COUNT = itertools.count(1)
_REQUEST_ID = re.compile(rb"[0-9A-Za-z._-]{1,128}")


def new_request_id() -> bytes:
    """Return an id that no other request of any proxy has."""
    return b"%b-%x" % (_RUN, next(_COUNT))


def is_request_id(value: bytes) -> bool:
    """Tell whether a caller's own id can be used: anything else is left out of logs and answers."""
    return _REQUEST_ID.fullmatch(value) is not None


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
