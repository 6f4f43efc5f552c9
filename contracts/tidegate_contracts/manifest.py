"""The manifest of a registered model version: every file of its repository entry, with its digest.

The client writes it as an artifact next to the entry when it registers a version. It tags the version with the
manifest's own digest, which the registry's artifact store cannot change. Field names on the wire are camelCase.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from .message import Message

VERSION: Final = 1
ENTRY_VERSION: Final = "1"
"""The directory of the version within a registered entry, whatever number the registry gives to the version."""
BESIDE: Final = ".entry"
"""Directory in a published version for the files of its entry outside the version's directory. Triton reads only those
that the configuration names."""
PUBLISHED_MANIFEST: Final = ".manifest.json"
"""File in a published version's directory: the manifest of its entry, which proves a copy of the version."""
_STEP = re.compile(r"(?!\.{1,2}(/|$))[^/\\\x00-\x1f\x7f]+")


class ManifestFile(Message):
    """One file of the entry."""

    path: str  # Below the entry, with `/` between its steps: `config.pbtxt`, `1/model.onnx`.
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    executable: Literal[True] | None = None
    """Whether the file is executable, such as a Python model's own stub. Object stores keep no file modes."""

    @model_validator(mode="after")
    def _path_stays_inside(self) -> Self:
        if not is_inside(self.path):
            raise ValueError(f"path {self.path!r} does not stay within the entry")
        return self


class Manifest(Message):
    """`manifest.json`: the files, in the order of their paths."""

    version: Literal[1] = VERSION
    model: str  # Name of the model and of the entry's directory.
    files: tuple[ManifestFile, ...]

    @model_validator(mode="after")
    def _files_stand_once_in_order(self) -> Self:
        paths = [file.path for file in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("files must be in the order of their paths, each once")
        return self

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def digest(self) -> str:
        """Return the SHA-256, in hexadecimal, of the canonical form: the same content has the same digest."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def canonical(self) -> bytes:
        """Return the bytes of `manifest.json`: JSON with sorted keys and no white space, UTF-8."""
        fields = self.model_dump(by_alias=True, mode="json", exclude_none=True)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def published_path(path: str, number: int | str) -> str:
    """Return the path of an entry's file in published version `number`: all in one directory, for one rename."""
    first, _, rest = path.partition("/")
    return f"{number}/{rest}" if first == ENTRY_VERSION and rest else f"{number}/{BESIDE}/{path}"


def is_inside(path: str) -> bool:
    """Return whether a relative path stays inside: no empty step, no `.` or `..`, no control characters."""
    return all(_STEP.fullmatch(step) for step in path.split("/"))


def make_manifest(model: str, files: Sequence[ManifestFile]) -> Manifest:
    """Return the manifest of these files, in any order."""
    return Manifest(model=model, files=tuple(sorted(files, key=lambda file: file.path)))
