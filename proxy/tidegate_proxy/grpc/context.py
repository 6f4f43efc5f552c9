"""What all gRPC calls of a proxy share."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ..concurrency import ConcurrencyLimiter
from ..shared_state import SharedState
from .server_methods import ServerMethods
from .upstreams import Upstreams


class TurnQueue:
    """Long work in small steps: in each turn of the loop one call does one step."""

    def __init__(self) -> None:
        self._steps: deque[Callable[[], None]] = deque()

    def add(self, step: Callable[[], None]) -> None:
        """Have a step done in its turn."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._steps[0]()  # its call may add another, behind those of the others
        self._steps.popleft()
        if self._steps:
            asyncio.get_running_loop().call_soon(self._next)


@dataclass
class GrpcContext:
    """Streams have slots of their own, `streams`: idle ones keep no other call waiting."""

    shared: SharedState
    upstreams: Upstreams
    servers: ServerMethods
    streams: ConcurrencyLimiter
    unpacking: TurnQueue = field(default_factory=TurnQueue)
