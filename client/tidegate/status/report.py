"""The status of models: the words that `tidegate status --json` and `tidegate models --json` print."""

from datetime import datetime
from typing import Literal

from tidegate_contracts.message import Message

Loading = Literal["preload", "on-demand"]


class VersionStatus(Message):
    """One version of a model; counts are since it was loaded, of one replica."""

    version: str
    ready: bool | None = None
    """None where that could not be told."""
    requests: int = 0
    """Those that were answered."""
    failures: int = 0
    rows: int = 0
    """Rows of batches in them."""
    mean_seconds: float | None = None
    """Of an answered request, in Triton."""
    queue_seconds: float | None = None
    """What of that it waited for its turn."""
    last_used: datetime | None = None
    per_second: float | None = None
    """Requests in the time that was watched; None where both counts are not of one load at one replica."""
    busy: float | None = None
    """Share of the time that was watched in which it was computing; more than 1 where several instances were."""


class ModelStatus(Message):
    """One model on one data plane."""

    environment: str
    plane: str
    model: str
    server: str | None = None
    pool: str | None = None
    loading: Loading | None = None
    state: Literal["ready", "not-ready", "absent", "hidden", "failing"]
    """`absent`: no version of it is in a pool that has all of its models in memory; `hidden`: this caller may not see
    it; `failing`: see `why`. An on-demand model is ready when it can be loaded."""
    why: str = ""
    resident: bool | None = None
    """Whether it is in memory; None where that could not be told."""
    traffic: str
    """Who decides which version answers: `90 % 1, 10 % 2`, `champion → 3`, `newest`."""
    versions: tuple[VersionStatus, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    max_batch: int | None = None
    """Rows that a request may have; 0: it takes no batches. None where it would have to be loaded to tell."""

    @property
    def per_second(self) -> float:
        """Requests a second to all of its versions."""
        return sum(each.per_second or 0.0 for each in self.versions)

    @property
    def busy(self) -> float:
        """The share of time in which it was computing."""
        return sum(each.busy or 0.0 for each in self.versions)

    @property
    def requests(self) -> int:
        """Requests that were answered."""
        return sum(each.requests for each in self.versions)


class PlaneStatus(Message):
    """One environment on one data plane."""

    environment: str
    plane: str
    proxy: str
    caller: str = ""
    """As whom the proxy knows the caller."""
    error: str = ""
    """Why nothing could be learned."""
    exit_code: int = 0
    """With which `tidegate` ends for that."""
    unavailable: tuple[str, ...] = ()
    """Pools that gave no statistics, as `server/pool`."""
    models: tuple[ModelStatus, ...] = ()
    """The hottest first."""
