"""Small, complete entries to publish, so that incomplete ones are obvious."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.publishing import Repository
from tidegate.triton.publishing.config import published_config
from tidegate_contracts.manifest import Manifest, ManifestFile, make_manifest

from tests.client.triton.publishing.opening import open_repository

PROGRAM = """
import hashlib, os, time
import numpy, triton_python_backend_utils as triton

class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(args["model_repository"], args["model_version"], "weights", "data"), "rb") as data:
            if hashlib.sha256(data.read()).hexdigest() != "{digest}":
                raise RuntimeError("incomplete weights")
        self.answer = [int(args["model_version"]), {release}, time.time_ns()]
        {more}

    def execute(self, requests):
        output = triton.Tensor("OUTPUT", numpy.array(self.answer, numpy.int64))
        return [triton.InferenceResponse([output]) for _ in requests]
"""
CONFIG = """
# As it was registered.
name: "{model}"
backend: "python"
max_batch_size: 0
input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] }}
output {{ name: "OUTPUT" data_type: TYPE_INT64 dims: [ 3 ] label_filename: "labels.txt" }}
instance_group {{ count: 1 kind: KIND_CPU }}
"""


@dataclass(frozen=True)
class Entry:
    files: Mapping[str, bytes]
    model: str = "m"
    manifest: Manifest = field(default=None)  # type: ignore[assignment]  # made of the files unless one is given

    def __post_init__(self) -> None:
        if self.manifest is not None:
            return
        files = [ManifestFile(path=path, size=len(b), sha256=digest(b)) for path, b in self.files.items()]
        object.__setattr__(self, "manifest", make_manifest(self.model, files))

    def write(self, folder: Path) -> None:
        """Write the missing files in a directory, like a fetch."""
        for path, content in self.files.items():
            file = folder / path
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entry(release: int, model: str = "m", more: str = "pass", size: int = 1 << 16) -> Entry:
    """Return an entry for Triton's Python backend. Each release has files with other content."""
    weights = bytes([release % 256]) * size
    program = PROGRAM.format(digest=digest(weights), release=release, more=more)
    return Entry(
        {
            "1/model.py": program.encode(),
            "1/weights/data": weights,
            # A file instead of Python's directory, so that Triton's Python backend cannot write into the version.
            "1/__pycache__": b"",
            "config.pbtxt": CONFIG.format(model=model).encode(),
            "labels.txt": f"release {release}\n".encode() * 3,
            f"notes/{release}.txt": b"beside the version",
        },
        model,
    )


def config(of: Entry, owner: int, served: Sequence[int], **aliases: int) -> str:
    text = of.files["config.pbtxt"].decode()
    return published_config(text, model=of.model, owner=owner, served=served, aliases=aliases)


@contextmanager
def changing(where: Path | str, model: str = "m") -> Iterator[Repository]:
    repository = open_repository(where)
    with repository.lock(model, "a test"):
        yield repository


def publish(where: Path | str, of: Entry, number: int, served: Sequence[int] = (), **aliases: int) -> bool:
    with changing(where, of.model) as repository:
        staged = repository.staging(of.model, number)
        of.write(staged)
        text = config(of, number, served or [number], **aliases)
        return repository.publish(of.model, number, staged, of.manifest, text)


def content(repository: Repository) -> dict[str, bytes]:
    return {file.path: b"".join(repository.chunks("m", file.path)) for file in repository.files("m")}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
