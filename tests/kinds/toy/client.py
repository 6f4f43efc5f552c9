"""A toy kind of server for the client: its entries are folders with a `toy.json`, `{"tensors": ["IN", "OUT"]}`."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel
from tidegate.errors import UsageError
from tidegate.findings import Finding, error
from tidegate.publishing import Repository

FILE = "toy.json"


class ToyEntry(BaseModel):
    """What an entry says of itself."""

    tensors: tuple[str, ...]


class ToyRepository:
    """A repository that only knows where it is."""

    def __init__(self, where: Path | str) -> None:
        self.where = str(where)


class ToyKind:
    """See `tidegate.kinds.Kind`."""

    def recognises(self, folder: Path) -> bool:
        return any((entry / FILE).is_file() for entry in self.entries_in(folder))

    def entries_in(self, folder: Path) -> list[Path]:
        return [folder] if (folder / FILE).exists() else sorted(file.parent for file in folder.glob(f"*/{FILE}"))

    def check(
        self,
        folder: Path,
        name: str | None = None,
        *,
        backends: Collection[str] | None = None,
        gpu: bool | None = None,  # noqa: ARG002
    ) -> list[Finding]:
        found = [] if self._read(folder).get("tensors") else [error("there are no tensors", f"{FILE}:1")]
        if backends is not None and "toy" not in backends:
            found.append(error(f"{name or folder.name} wants the backend toy", FILE))
        return found

    def show(self, folder: Path) -> ToyEntry:
        return ToyEntry.model_validate(self._read(folder))

    def open_repository(self, where: Path | str) -> Repository:
        return cast("Repository", ToyRepository(where))

    def _read(self, folder: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((folder / FILE).read_text("utf-8"))
        except OSError:
            raise UsageError("there is no entry", where=str(folder)) from None
        return found
