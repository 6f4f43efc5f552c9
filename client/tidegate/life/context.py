"""What every operation works with: the environments, the registry, and ways to repositories and proxies."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tidegate_contracts.environments import DatasetLocation, Environment, Environments, Plane, WhoAmI

from .. import environments
from ..calling.proxy import ProxyClient
from ..environments import Home
from ..errors import UsageError
from ..kinds import kind_of_server
from ..registry import Registry, Trust
from ..registry.records import Records
from ..repository import Repository
from ..settings import Settings, settings

Advance = Callable[[int], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Told what is going on and how many bytes that is, it yields who counts them; `cli.output.progress` is one."""
WAIT_SECONDS = 300.0
"""For a version to become ready, besides the time until Triton looks at its repository."""


def _silent(what: str, total_bytes: int) -> AbstractContextManager[Advance]:  # noqa: ARG001
    return nullcontext(lambda _bytes: None)


@dataclass
class Context:
    """One per command; repositories and proxies are opened when they are wanted, and proxies once each."""

    known: Environments
    registry: Registry
    said: Settings = field(default_factory=settings)
    trust: Trust | None = None
    """Whose signatures are wanted; None where none is."""
    tell: Callable[[str], None] = lambda _text: None
    """Is told of each step, in words."""
    progress: Progress = _silent
    wait_seconds: float = WAIT_SECONDS
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _proxies: dict[str, ProxyClient] = field(default_factory=dict)

    def environment(self, name: str) -> Environment:
        """Return the environment of this name. Raises NotFoundError."""
        return environments.environment(name, self.known)

    def proxy(self, plane: Plane) -> ProxyClient:
        """Return who calls the proxy of a data plane."""
        if plane.proxy_url not in self._proxies:
            self._proxies[plane.proxy_url] = ProxyClient(plane.proxy_url)
        return self._proxies[plane.proxy_url]

    def repository(self, of: Environment, home: Home) -> Repository:
        """Return the repository of a server. Raises UsageError where its dataset is not mounted here."""
        kind = kind_of_server(home.server.kind, home.server.name)
        if isinstance(home.server.location, DatasetLocation):
            return kind.open_repository(environments.folder_of(home, of, self.known, self.said))
        return kind.open_repository(home.server.location.url)

    def records(self, model: str) -> Records:
        """Return what was done with a model's versions, and tell what of the records cannot be read."""
        found = self.registry.records(model)
        for each in found.unreadable:
            self.tell(f"warning: {each} cannot be read, and was left out: find out who did that, and mend it")
        return found

    def who(self, of: Environment, plane: Plane) -> WhoAmI:
        """Return as whom the proxy there knows the caller. Raises RefusedError, UnreachableError."""
        who = self.proxy(plane).whoami()
        if who.environment != of.name:
            raise UsageError(
                f"the proxy is that of {who.environment}, and not of {of.name}",
                where=plane.proxy_url,
                do="have environments.json made anew with `make environments`",
            )
        return who

    def close(self) -> None:
        """Close all connections."""
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()


@contextmanager
def opened(
    environments_file: Path | None = None,
    *,
    trust: Trust | None = None,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Iterator[Context]:
    """Open a context by the environment variables; the registry is MLflow's own MLFLOW_TRACKING_URI."""
    context = Context(environments.load(environments_file), Registry(), trust=trust, wait_seconds=wait_seconds)
    context.tell = tell or context.tell
    context.progress = progress or context.progress
    try:
        yield context
    finally:
        context.close()
