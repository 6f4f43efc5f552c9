# ruff: noqa: ARG002 - a toy needs little of what it is told
"""A toy kind of server for the client: its entries are folders with a `toy.json`, `{"tensors": ["IN", "OUT"]}`.

Which versions serve stands in `served.json` of a model in the repository.
"""

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import NotFoundError, UsageError
from tidegate.findings import Finding, ServerHas, error
from tidegate.hashing import sha256_of
from tidegate.parallel import Progress
from tidegate.registry import Golden
from tidegate.repository import Published, Repository, StoredFile
from tidegate_contracts.manifest import ENTRY_VERSION, Manifest

FILE = "toy.json"


class ToyEntry(BaseModel):
    """What an entry says of itself."""

    tensors: tuple[str, ...]


class ToyConfigs:
    """What is served stands in one file for all versions."""

    CONFIG = FILE
    NOT_READY = "is being wound up"

    def published_config(
        self, entry_config: str, *, model: str, owner: int, served: Collection[int], aliases: Mapping[str, int]
    ) -> str:
        said = {"model": model, "entry": entry_config, "owner": owner, "served": sorted(served)}
        return json.dumps(said | {"aliases": dict(aliases)})

    def closed_config(self, config: str) -> str:
        return json.dumps({"owner": None, "served": [], "aliases": {}})

    withdrawn_config = closed_config

    def read_published(self, text: str) -> Published:
        said = json.loads(text)
        return Published(said["owner"], tuple(said["served"]), said["aliases"])

    def published_path(self, path: str, number: int) -> str:
        return f"{number}/{path}"

    def config_differences(self, one: str, other: str) -> list[str]:
        return [] if one == other else [f"{one} → {other}"]

    def loaded_at_once(self, one: str | None, other: str) -> int:
        return len({*self.read_published(one or other).served, *self.read_published(other).served})


class ToyRepository:
    """A folder of models, each a folder of versions."""

    configs = ToyConfigs()

    def __init__(self, where: Path | str) -> None:
        self.root, self.where = Path(where), str(where)

    def models(self) -> list[str]:
        return sorted(folder.name for folder in self.root.iterdir())

    def versions(self, model: str) -> list[int]:
        return sorted(int(folder.name) for folder in (self.root / model).glob("[0-9]*"))

    def files(self, model: str) -> list[StoredFile]:
        files = (path for path in (self.root / model).rglob("*") if path.is_file())
        return sorted(StoredFile(str(path.relative_to(self.root / model)), path.stat().st_size) for path in files)

    def chunks(self, model: str, path: str) -> Iterator[bytes]:
        yield self.read(model, path)

    def read(self, model: str, path: str, limit: int = 1 << 20) -> bytes:
        try:
            return (self.root / model / path).read_bytes()[:limit]
        except FileNotFoundError:
            raise NotFoundError(f"model {model} has no file {path}", where=self.where) from None

    def config(self, model: str) -> str | None:
        served = self.root / model / "served.json"
        return served.read_text() if served.exists() else None

    def config_age(self, model: str) -> float:
        return time.time() - (self.root / model / "served.json").stat().st_mtime

    def differences(self, model: str, number: int, manifest: Manifest, progress: Progress | None = None) -> list[str]:
        return [
            f"{file.path} is another one"
            for file in manifest.files
            if sha256_of([self.read(model, f"{number}/{file.path}")]) != file.sha256
        ]

    def strays(self, model: str, manifests: Mapping[int, Manifest]) -> list[str]:
        return []

    def lock(self, model: str, who: str) -> AbstractContextManager[None]:
        return nullcontext()

    def staging(self, model: str, number: int, size: int = 0) -> Path:
        folder = self.root.parent / "staged" / model / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def publish(
        self, model: str, number: int, staged: Path, manifest: Manifest, config: str, progress: Progress | None = None
    ) -> bool:
        shutil.copytree(staged, self.root / model / str(number))
        self.write_config(model, config)
        return True

    def write_config(self, model: str, config: str) -> None:
        (self.root / model / "served.json").write_text(config)

    def remove_version(self, model: str, number: int) -> None:
        shutil.rmtree(self.root / model / str(number))

    def withdraw(self, model: str) -> None:
        self.write_config(model, self.configs.closed_config(""))

    def put_away(self, model: str, config: str) -> None:
        pass


class ToyKind:
    """See `tidegate.kinds.ServerKind`."""

    configs = ToyConfigs()
    entry = f"a toy's, with {FILE}"
    follows_repository = speaks_v2 = True

    def version_folder(self, entry: Path) -> str:
        return ENTRY_VERSION

    def recognises(self, folder: Path) -> bool:
        return any((entry / FILE).is_file() for entry in self.entries_in(folder))

    def entries_in(self, folder: Path) -> list[Path]:
        return [folder] if (folder / FILE).exists() else sorted(file.parent for file in folder.glob(f"*/{FILE}"))

    def check(
        self, folder: Path, name: str | None = None, *, trusted: bool = False, **has: Unpack[ServerHas]
    ) -> list[Finding]:
        found = [] if self._read(folder).get("tensors") else [error("there are no tensors", f"{FILE}:1")]
        if (backends := has.get("backends")) is not None and "toy" not in backends:
            found.append(error(f"{name or folder.name} wants the backend toy", FILE))
        return found

    def show(self, folder: Path) -> ToyEntry:
        return ToyEntry.model_validate(self._read(folder))

    def print_entry(self, shown: ToyEntry) -> None:
        print(f"tensors: {', '.join(shown.tensors)}")

    def check_golden(self, folder: Path, golden: Golden, where: str) -> None:
        golden.check(dict.fromkeys(self.show(folder).tensors, False), [], where)

    def ask(self, proxy: ProxyClient, model: str, request: Mapping[str, Any], **about: Any) -> dict[str, Any]:
        return proxy.infer_json(model, request, **about)

    def open_repository(self, where: Path | str) -> Repository:
        return ToyRepository(where)

    def check_staged(
        self, staged: Path, model: str, repository: Repository, *, bring: Callable[[str], str], **has: Unpack[ServerHas]
    ) -> list[Finding]:
        return self.check(staged)

    def check_backend(
        self, model: str, entry_config: str, files: Collection[StoredFile], backends: Collection[str] | None
    ) -> list[Finding]:
        return []

    def needs_gpu(self, entry_config: str) -> str | None:
        return None

    def code_backend(self, entry_config: str, files: Iterable[StoredFile]) -> str | None:
        return None

    def alias_of(self, config: Mapping[str, Any], alias: str) -> str | None:
        version: str | None = config.get(alias)
        return version

    def counts(self, statistics: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(count) for name, count in statistics.items()}

    def check_beside(self, old_config: str, new_config: str, old: int, new: int) -> list[Finding]:
        return []

    def _read(self, folder: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((folder / FILE).read_text("utf-8"))
        except OSError:
            raise UsageError("there is no entry", where=str(folder)) from None
        return found
