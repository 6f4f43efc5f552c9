"""The environments, registry, repositories and proxies that every operation uses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidegate_contracts.environments import DatasetLocation, Environment, Environments, Plane, WhoAmI

from ..calling.proxy import ProxyClient
from ..environments import Mounts, environment, folder_of, mounts
from ..errors import UsageError
from ..publishing import Repository, open_repository
from ..registry import Registry
from ..registry.version import Record, Records
from . import WAIT_SECONDS, Progress, silent
from .target import Placement


@dataclass
class Context:
    """One per command. It opens repositories on each use, and each proxy once."""

    known: Environments
    registry: Registry
    mounted: Mounts = field(default_factory=mounts)
    public_key: Path | None = None  # Versions must be signed with its private key. None: no signature is required.
    tell: Callable[[str], None] = lambda _text: None  # called with a text for each step
    progress: Progress = silent
    wait_seconds: float = WAIT_SECONDS
    poll_seconds: float = 15.0  # An eviction policy has read its repository. A preload pool has its own interval.
    loaded_seconds: float = 900.0
    """After this time every load has finished or failed. Triton hangs for good if files go while it loads them."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _proxies: dict[str, ProxyClient] = field(default_factory=dict)

    def now_after(self, latest: datetime | None) -> datetime:
        """Return the time, or a microsecond after `latest` if another clock is ahead: records keep their order."""
        now = self.now()
        return now if latest is None or now > latest else latest + timedelta(microseconds=1)

    def environment(self, name: str) -> Environment:
        return environment(name, self.known)

    def proxy(self, plane: Plane) -> ProxyClient:
        if plane.proxy_url not in self._proxies:
            self._proxies[plane.proxy_url] = ProxyClient(plane.proxy_url)
        return self._proxies[plane.proxy_url]

    def repository(self, home: Placement) -> Repository:
        """Return the repository of a server. Raises UsageError if its dataset is not mounted here."""
        location = home.server.location
        if not isinstance(location, DatasetLocation):
            return open_repository(location.url, home.kind.configs)
        folder = folder_of(location, home.environment.name, home.plane.name, self.known, self.mounted)
        return open_repository(folder, home.kind.configs)

    def records(self, model: str, *, aloud: bool = True) -> Records:
        """Return the records of a model under the current names. `aloud` reports unreadable records."""
        found = self.registry.records(model)
        for each in found.unreadable if aloud else ():
            self.tell(f"warning: {each} cannot be read and was skipped. Find out who wrote it, and repair it")
        return Records(map(self._in_names_of_now, found), found.unreadable)

    def attempts(self, model: str) -> Records:
        """Return the records of started and failed operations of a model, under the current names."""
        return Records(map(self._in_names_of_now, self.registry.attempts(model)))

    def alias(self, model: str, environment: str) -> int | None:
        """Return the version of an environment's alias in the registry, under its current or a former name."""
        names = next((_names(each) for each in self.known.environments if each.name == environment), [environment])
        found = (self.registry.alias(model, name) for name in names)
        return next((number for number in found if number is not None), None)

    def _in_names_of_now(self, record: Record) -> Record:
        for of in (each for each in self.known.environments if record.environment in _names(each)):
            planes = (plane.name for plane in of.planes if record.plane in _names(plane))
            return record.model_copy(update={"environment": of.name, "plane": next(planes, record.plane)})
        return record

    def who(self, home: Placement) -> WhoAmI:
        """Return the caller's identity at the proxy. Raises RefusedError, UnreachableError, UsageError."""
        who = self.proxy(home.plane).whoami()
        if who.environment != home.environment.name:
            what = f"the proxy serves {who.environment}, not {home.environment.name}"
            do = "have your platform admin run `tidegate environments` again"
            raise UsageError(what, where=home.plane.proxy_url, do=do)
        return who

    def close(self) -> None:
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()


def _names(item: Environment | Plane) -> list[str]:
    """Return the current name and the former names, the newest first."""
    return [item.name, *reversed(item.formerly or ())]
