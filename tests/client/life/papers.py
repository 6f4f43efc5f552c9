"""A fake registry and proxy, for cases between the steps of an operation that need no Triton."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidegate.environments import Mounts
from tidegate.errors import NotFoundError, TidegateError, UnfinishedError
from tidegate.life.context import Context
from tidegate.life.publish import Outcome, publish_version
from tidegate.life.rules import Operation
from tidegate.registry import Golden, Record, RegisteredVersion
from tidegate.registry.manifest import checked_name, manifest_of
from tidegate.registry.version import Records
from tidegate.triton.publishing.config import read_published
from tidegate_contracts.environments import Environments, Location, ObjectStoreLocation, WhoAmI
from tidegate_contracts.manifest import Manifest
from tidegate_contracts.triton import ALIAS_PARAMETER
from tidegate_contracts.whereabouts import Place, VisibleModel, Whereabouts

from tests.client.triton.publishing.opening import open_repository

from .entries import write_entry
from .test_life_target import MODEL, dataset, known, plane


class Papers:
    """The fake registry: an entry of each version, aliases, tags and records."""

    where = "a shelf"

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.aliases: dict[str, int] = {}
        self.tags: dict[str, str] = {}
        self.written: list[Record] = []
        self.begun: list[Record] = []
        self.junk: tuple[str, ...] = ()
        self.request: Golden | None = None
        self.stopped: BaseException | None = None  # raised when an alias is moved

    def register(self, number: int) -> RegisteredVersion:
        write_entry(self._entry(number), number)
        return self._version(number)

    def versions(self, model: str) -> list[RegisteredVersion]:
        if checked_name(model) != self.model:
            raise NotFoundError(f"there is no model {model}")
        return [self._version(int(each.name)) for each in sorted(self.folder.iterdir())]

    def version(self, model: str, which: str) -> RegisteredVersion:
        if not self._entry(int(which)).exists():
            raise NotFoundError(f"{model} has no version {which}")
        return self._version(int(which))

    def manifest(self, version: RegisteredVersion) -> Manifest:
        return manifest_of(self._entry(version.number))

    def read_file(self, version: RegisteredVersion, path: str) -> bytes:
        return (self._entry(version.number) / path).read_bytes()

    def fetch(self, version: RegisteredVersion, folder: Path, _progress: Any) -> None:
        for file in self.manifest(version).files:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.path).write_bytes(self.read_file(version, file.path))

    def golden(self, _version: RegisteredVersion) -> Golden | None:
        return self.request

    def alias(self, _model: str, alias: str) -> int | None:
        return self.aliases.get(alias)

    def set_alias(self, _model: str, alias: str, number: int, *, expect: int | None) -> None:
        if self.stopped is not None:
            raise self.stopped
        assert self.aliases.get(alias) == expect
        self.aliases[alias] = number

    def tag(self, _version: RegisteredVersion, key: str, value: str) -> None:
        self.tags[key] = value

    def records(self, _model: str) -> Records:
        return Records(self.written, self.junk)

    def remove_alias(self, _model: str, alias: str, *, expect: int | None) -> None:
        assert self.aliases.pop(alias, None) == expect

    def attempts(self, _model: str) -> Records:
        return Records(self.begun)

    def append_record(self, _version: RegisteredVersion, record: Record) -> None:
        (self.written if record.ended == "done" else self.begun).append(record)

    def _entry(self, number: int) -> Path:
        return self.folder / str(number) / self.model

    def _version(self, number: int) -> RegisteredVersion:
        return RegisteredVersion.model_validate({
            "model": self.model, "number": number, "runId": "", "source": "", "manifestSha256": str(number),
            "registeredBy": "anna", "clientModel": None, "tags": {},
        })  # fmt: skip


class Answers:
    """A fake proxy of a Triton that has loaded the versions in the repository's configuration."""

    def __init__(self, repository: Any) -> None:
        self.repository = repository
        self.killed = self.interrupted = False
        self.broken: dict[int, Iterator[TidegateError]] = {}
        """Reasons why versions cannot be loaded, one per request. Afterwards there is none."""
        self.requested: list[int] = []
        self.places: tuple[Place, ...] = ()  # The places in `whereabouts`.
        self.silent: Iterator[BaseException | None] = iter(())  # Exceptions of `whereabouts`, one per request.
        self.is_ready = False  # Whether a replica is ready, regardless of the repository.
        self.failures: Iterator[int | None] = iter(())

    def metadata(self, model: str, **_how: Any) -> dict[str, Any]:
        return {"versions": [str(number) for number in self._served(model)]}

    def config(self, model: str, **_how: Any) -> dict[str, Any]:
        aliases = read_published(open_repository(self.repository).config(model) or "").aliases
        return {"parameters": {ALIAS_PARAMETER + each: {"string_value": str(aliases[each])} for each in aliases}}

    def ready(self, model: str, *, version: int, **_how: Any) -> bool:
        if self.is_ready:
            return True
        if self.killed:
            raise SystemExit  # as if the process were killed: nothing restores the configurations
        if error := next(self.broken.get(version, iter(())), None):
            raise error
        return version in self._served(model)

    def whereabouts(self, model: str, **_how: Any) -> Whereabouts:
        if self.interrupted and not self._served(model):
            raise KeyboardInterrupt
        if error := next(self.silent, None):
            raise error
        about = VisibleModel(
            model=model, server="gpu", pool="main", loading="preload", state="unknown", places=self.places
        )
        return Whereabouts(environment="prod", models=(about,))

    def infer_json(self, _model: str, _request: Any, *, version: int, **_how: Any) -> dict[str, Any]:
        self.requested.append(version)
        return {"outputs": [{"name": "OUTPUT", "data": [0.0, 0.0]}]}

    def whoami(self) -> WhoAmI:
        return WhoAmI(environment="prod", principal="anna", source="api-keys")

    def statistics(self, model: str, *, version: int, **_how: Any) -> list[dict[str, Any]]:
        count = next(self.failures)
        failed = {"inference_stats": {"fail": {"count": count}}}
        return [] if count is None else [{"name": model, "version": str(version)} | failed]

    def _served(self, model: str) -> tuple[int, ...]:
        return read_published(open_repository(self.repository).config(model) or "").served


def context(known: Environments, papers: Papers, answers: Answers, dataset: Path) -> Context:
    proxies: Any = {plane.proxy_url: answers for of in known.environments for plane in of.planes}
    registry: Any = papers
    return Context(known, registry, Mounts(datasets={"models": dataset}), wait_seconds=5, _proxies=proxies)


class Life:
    """A model's life in prod, of which only the repository is real."""

    def __init__(self, folder: Path, location: Location | None = None) -> None:
        """Take another location than a directory, which is `models` by default."""
        self.models = folder / "dataset" / "models"
        self.models.mkdir(parents=True)
        (folder / "shelf").mkdir()
        self.papers = Papers(folder / "shelf", MODEL)
        self.answers = Answers(location.url if isinstance(location, ObjectStoreLocation) else self.models)
        self.of, everywhere = known(plane("east", location or dataset("a")))
        self.here = context(everywhere, self.papers, self.answers, folder / "dataset")
        self.messages: list[str] = []
        self.here.tell = self.messages.append

    def bring(self, number: int, what: Operation = "deploy") -> Outcome:
        registered = [each.number for each in self.papers.versions(MODEL)]
        version = self.papers.version(MODEL, str(number)) if number in registered else self.papers.register(number)
        return publish_version(self.here, what, version, self.of, "anna")

    def fails(self, number: int, match: str | None = None) -> UnfinishedError:
        with pytest.raises(UnfinishedError, match=match) as caught:
            self.bring(number)
        return caught.value

    def served(self) -> tuple[int, ...]:
        return read_published(open_repository(self.models).config(MODEL) or "").served
