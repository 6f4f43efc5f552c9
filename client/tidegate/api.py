"""The commands as methods of a Python object: `from tidegate import Tidegate`.

Each method imports its modules when it runs, so that a process that only calls models does not load the others.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .errors import UsageError
from .life import WAIT_SECONDS, Progress, silent

if TYPE_CHECKING:
    from .life.audit import Unserved, Verified
    from .life.context import Context
    from .life.publish import Outcome
    from .registry import Record, RegisteredVersion, SigningKey
    from .status import PlaneOverview, PlaneStatus

CALL_SECONDS: Final = 60.0


class Tidegate(AbstractContextManager["Tidegate"]):
    """The life of models. Each method is the command of the same name, with the same rules.

    Configure it with environment variables, as the commands (docs/models.md). Methods raise
    `tidegate.errors.TidegateError`, whose text is what the command prints. Name models as for the commands: `fraud`,
    or `fraud@3` and `fraud@champion` for one version. As a context manager it closes its connections.
    """

    def __init__(
        self,
        *,
        public_key: Path | None = None,
        wait_seconds: float = WAIT_SECONDS,
        tell: Callable[[str], None] = lambda _text: None,
        progress: Progress = silent,
    ) -> None:
        """Open no connection yet. With `public_key`, only versions signed with its private key are deployed. `tell` is
        called with a text for each step, `progress` for each transfer."""
        self._public_key, self._wait_seconds = public_key, wait_seconds
        self._tell, self._progress = tell, progress

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if "_context" in vars(self):  # otherwise no connection was opened
            self._context.close()

    def register(
        self,
        entry: Path | str,
        name: str | None = None,
        *,
        server: str | None = None,
        golden: Path | Mapping[str, Any] | None = None,
        key: "SigningKey | None" = None,
        trusted: bool = False,
    ) -> "RegisteredVersion":
        """Register the entry in a directory as a new version. The same content always gives the same version.

        The default `name` of the model is the directory's. `server` is the inference server that its endpoints name.
        `golden` is a golden request, or a JSON file with one. `trusted` accepts code in a language model's entry.
        """
        from .life.checks import against_environments
        from .registry import Registry
        from .registry.golden import read_golden
        from .registry.manifest import checked_name, manifest_of
        from .registry.registration import checked, registrant

        entry, request, total = Path(entry), None, 0
        try:
            if isinstance(golden, Path):
                request = read_golden(golden.read_bytes(), str(golden))
            elif golden is not None:
                request = read_golden(json.dumps(golden).encode(), "the golden request")
        except OSError as error:
            raise UsageError("the file cannot be read", where=str(golden), why=error.strerror or "") from None
        for file in entry.rglob("*"):
            with suppress(OSError):  # `manifest_of` reports files that cannot be read
                total += file.lstat().st_size if file.is_file() else 0
        model = checked_name(name or entry.resolve().name)
        for warning in checked(entry, model, request, trusted=trusted):
            self._tell(warning)
        for finding in against_environments(entry, model):
            self._tell(str(finding))
        with self._progress("reading", total) as advance:
            manifest = manifest_of(entry, model, advance)
        registered_by, unproven = registrant()
        with self._progress("sending", manifest.size) as advance:
            version = Registry().register(
                entry, registered_by=registered_by, server=server, golden=request, key=key, manifest=manifest,
                progress=advance, unproven=unproven, tell=self._tell,
            )  # fmt: skip
        if unproven:
            self._tell(f"registered as {registered_by}: {unproven}")
        return version

    def deploy(self, model: str, to: str | None = None) -> "Outcome":
        """Deploy a registered version, by default the latest. `to` is required if several environments accept any."""
        from .life.deploy import deploy

        return deploy(self._context, model, to)

    def promote(self, model: str, to: str) -> "Outcome":
        """Promote the version of one environment to the next, under the rules of the target."""
        from .life.deploy import promote

        return promote(self._context, model, to)

    def roll_back(self, model: str, environment: str, version: int | None = None) -> "Outcome":
        """Go back to the previous version of an environment, or to an earlier one."""
        from .life.deploy import rollback

        return rollback(self._context, model, environment, version)

    def undeploy(self, model: str, environment: str) -> "Outcome":
        """Remove a model from an environment. When this returns, no server there serves it. The registry keeps it."""
        from .life.undeploy import undeploy

        return undeploy(self._context, model, environment)

    def why(self, model: str, *, environment: str | None = None, plane: str | None = None) -> "list[PlaneOverview]":
        """Return the state of a model at every replica, what it waits for, who uses it, and what failed."""
        from .status import overview, proxies

        return overview(proxies(environment, plane), model=model)

    def verify(self, environment: str, models: Sequence[str] = ()) -> "Verified":
        """Compare the content of an environment's repositories with the registry, byte by byte."""
        from .life.audit import verify

        return verify(self._context, environment, models)

    def history(self, model: str, environment: str | None = None) -> "Sequence[Record]":
        """Return the records of a model, the newest first."""
        from .life.rules import history

        return history(self._context, model, environment)

    def unserved(self, environment: str, model: str | None = None) -> "list[Unserved]":
        """Return the versions in an environment that are not served and that no rollback needs."""
        from .life.audit import unserved

        return unserved(self._context, environment, model)

    def prune(self, environment: str, versions: "Sequence[Unserved]") -> "list[Unserved]":
        """Remove versions that `unserved` returned, and return the removed ones. The registry keeps them all."""
        from .life.audit import prune

        return prune(self._context, environment, versions)

    def predict(
        self,
        model: str,
        inputs: Any,
        *,
        environment: str | None = None,
        plane: str | None = None,
        seconds: float = CALL_SECONDS,
        parameters: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a model and return its outputs by name as arrays, or as a table if `inputs` is a table.

        `inputs` is a DataFrame, a dict of arrays or lists, a list of dicts, or an array for the only input. Without
        `environment`, DOMINO_INFERENCE_PROXY names the proxy. `parameters` are those of `Model.predict`. For a
        language model, `inputs` is the body of a chat, completion or embeddings request, and the outputs are lists.
        """
        from .calling.model import Model
        from .status import proxy_of

        name, _, version = model.partition("@")
        proxy = proxy_of(name, environment, plane)
        name = proxy.own_name(name)
        with proxy.client(seconds) as client:
            if not (kind := proxy.kind_of_model(name)).speaks_v2:
                answer = kind.ask(client, name, inputs, version=version or None)
                return {each["name"]: each["data"] for each in answer["outputs"]}
            return Model(client, name, version=version or None).predict(inputs, parameters)

    def status(
        self, model: str | None = None, *, environment: str | None = None, plane: str | None = None
    ) -> "list[PlaneStatus]":
        """Return the models, their state, the versions that answer, and their inputs and outputs."""
        from .status import collect, proxies

        return collect(proxies(environment, plane), model)

    @cached_property
    def _context(self) -> "Context":
        from .environments import load
        from .life.context import Context
        from .registry import Registry

        return Context(
            load(),
            Registry(),
            public_key=self._public_key,
            tell=self._tell,
            progress=self._progress,
            wait_seconds=self._wait_seconds,
        )
