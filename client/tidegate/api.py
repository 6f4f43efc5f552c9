"""Python's way to the commands: `from tidegate import Tidegate`.

It only forwards. What a method needs is imported when it runs: a process that only calls models imports none of it.
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
    """The life of models: each method is the command of the same name, with the same rules.

    Where things are is said by environment variables, as for the commands (docs/models.md). Methods raise
    `tidegate.errors.TidegateError`, whose text is what the command prints. Models are named as there: `fraud`, or
    `fraud@3` and `fraud@champion` for one version. It is also a context manager, which closes its connections.
    """

    def __init__(
        self,
        *,
        public_key: Path | None = None,
        wait_seconds: float = WAIT_SECONDS,
        tell: Callable[[str], None] = lambda _text: None,
        progress: Progress = silent,
    ) -> None:
        """Make the object; connections are made by the methods that need them.

        With `public_key` only versions that are signed with its other half are deployed. `tell` is called with each
        step in words, `progress` for each transfer.
        """
        self._public_key, self._wait_seconds = public_key, wait_seconds
        self._tell, self._progress = tell, progress

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        if "_context" in vars(self):  # else nothing was opened
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
        """Register the entry in a folder as a new version; the same content is always the same version.

        `name` is the model's (by default the folder's), `server` the inference server that its endpoints name,
        `golden` a golden request or the JSON file with it.
        `trusted`: code that the entry may do without may go with it.
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
            with suppress(OSError):  # what cannot be read is told when it is read
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
        """Bring a registered version, by default the latest, into an environment that takes any: `to`, of several."""
        from .life.deploy import deploy

        return deploy(self._context, model, to)

    def promote(self, model: str, to: str) -> "Outcome":
        """Bring the version that one environment has into the next, by the rules of that one."""
        from .life.deploy import promote

        return promote(self._context, model, to)

    def roll_back(self, model: str, environment: str, version: int | None = None) -> "Outcome":
        """Go back to the version that an environment had before, or to another one that it has had."""
        from .life.deploy import rollback

        return rollback(self._context, model, environment, version)

    def undeploy(self, model: str, environment: str) -> "Outcome":
        """Take a model out of an environment, where nothing serves it then; the registry keeps all of its versions."""
        from .life.undeploy import undeploy

        return undeploy(self._context, model, environment)

    def why(self, model: str, *, environment: str | None = None, plane: str | None = None) -> "list[PlaneOverview]":
        """Return where a model is, what it waits for, who holds it, and what failed, at every replica."""
        from .status import overview, proxies

        return overview(proxies(environment, plane), model=model)

    def verify(self, environment: str, models: Sequence[str] = ()) -> "Verified":
        """Compare what an environment's repositories hold with the registry, byte for byte."""
        from .life.audit import verify

        return verify(self._context, environment, models)

    def history(self, model: str, environment: str | None = None) -> "Sequence[Record]":
        """Return what became of a model, the newest first."""
        from .life.rules import history

        return history(self._context, model, environment)

    def unserved(self, environment: str, model: str | None = None) -> "list[Unserved]":
        """Return the versions in an environment that are not served and that no rollback needs."""
        from .life.audit import unserved

        return unserved(self._context, environment, model)

    def prune(self, environment: str, versions: "Sequence[Unserved]") -> "list[Unserved]":
        """Remove versions that `unserved` returned, and return those that were removed; the registry keeps them all."""
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
        """Call a model, and return its outputs: by name as arrays, or a table where a table was given.

        `inputs` is a DataFrame, a dict of arrays or lists, a list of dicts, or an array of the only input. Without an
        `environment` the proxy is the one of DOMINO_INFERENCE_PROXY. `parameters` are those of `Model.predict`. Of a
        language model it is the body of a chat, a completion or embeddings, and the outputs are lists.
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
        """Return which models there are, where, which versions answer, and what they take."""
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
