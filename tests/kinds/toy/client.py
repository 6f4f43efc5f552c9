# ruff: noqa: ARG002 - a toy needs little of what it is told
"""A toy kind of server for the client: its entries are folders with a `toy.json`, `{"tensors": ["IN", "OUT"]}`.

Which versions serve stands in `served.json` of a model in the repository.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from pydantic import BaseModel
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import UsageError
from tidegate.findings import Finding, ServerHas, error
from tidegate.publishing import Repository, open_repository
from tidegate.registry import Golden
from tidegate.repository import Published, StoredFile
from tidegate_contracts.manifest import ENTRY_VERSION

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

    def withdrawn_config(self, config: str) -> str:
        return json.dumps({"owner": None, "served": [], "aliases": {}})

    def read_published(self, text: str) -> Published:
        said = json.loads(text)
        return Published(said["owner"], tuple(said["served"]), said["aliases"])

    def config_differences(self, one: str, other: str) -> list[str]:
        return [] if one == other else [f"{one} → {other}"]

    def loaded_at_once(self, one: str | None, other: str) -> int:
        return len({*self.read_published(one or other).served, *self.read_published(other).served})


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
        return open_repository(where, self.configs)

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
