"""Who writes what the registry tells gets no credential by it, no file of ours, and no say over other versions."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidegate.errors import RefusedError
from tidegate.registry import Registry
from tidegate.registry.artifacts import artifacts_at
from tidegate.registry.records import RECORDS_FOLDER
from tidegate.registry.transfer import PARTIAL, download
from tidegate_contracts.manifest import ManifestFile

from .entries import noise

TRACKING = "https://mlflow.example.com/prefix"


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example.com/api/2.0/mlflow-artifacts/artifacts/1",
        "http://mlflow.example.com/api/2.0/mlflow-artifacts/artifacts/1",
        "https://mlflow.example.com:8443/1",
        "https://mlflow.example.com@evil.example.com/1",
        "mlflow-artifacts://evil.example.com/1",
    ],
)
def test_the_registrys_credential_goes_to_no_other_server(uri: str) -> None:
    with pytest.raises(RefusedError, match="on another server than the registry"):
        artifacts_at(uri, TRACKING)


@pytest.mark.parametrize(
    "uri", ["mlflow-artifacts:/1/abc", "mlflow-artifacts://mlflow.example.com/1", "https://mlflow.example.com:443/1"]
)
def test_the_registrys_own_artifacts_are_had(uri: str) -> None:
    assert artifacts_at(uri, TRACKING).where


class Shelf:
    """Artifacts that are a dictionary."""

    where = "a shelf"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        return {path: len(content) for path, content in self.files.items() if path.startswith(f"{folder}/")}, []

    @contextmanager
    def read(self, path: str) -> Iterator[Iterator[bytes]]:
        yield iter([self.files[path]])

    def write(self, path: str, content: Any) -> None:
        raise NotImplementedError


def test_a_download_is_not_written_through_a_link_that_others_laid(tmp_path: Path) -> None:
    content = noise(1, 100)
    digest, name = (hashlib.sha256(each).hexdigest() for each in (content, b"1/data"))
    mine, staged = tmp_path / "mine", tmp_path / "staged"
    mine.write_text("mine")
    (staged / PARTIAL).mkdir(parents=True)
    (staged / PARTIAL / name).symlink_to(mine)
    file = ManifestFile(path="1/data", size=100, sha256=digest)
    download(Shelf({"entry/1/data": content}), "entry", [file], staged, None)
    assert mine.read_text() == "mine"
    assert not (staged / "1" / "data").is_symlink()
    assert (staged / "1" / "data").read_bytes() == content
    (staged / "1" / "data").unlink()
    (tmp_path / "folder").mkdir()
    (staged / PARTIAL).symlink_to(tmp_path / "folder")
    download(Shelf({"entry/1/data": content}), "entry", [file], staged, None)
    assert (tmp_path / "folder").is_dir()
    assert not (staged / PARTIAL).is_symlink()


def test_a_record_in_the_run_of_one_version_says_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(version: int, model: str = "m") -> bytes:
        said = {"what": "deploy", "model": model, "version": version, "who": "eve", "when": "2026-01-01T00:00:00Z"}
        return json.dumps(said).encode()

    files = {"1": record(1), "2": record(2), "3": record(1, "other")}
    shelf = Shelf({f"{RECORDS_FOLDER}/{name}.json": content for name, content in files.items()})
    registry = Registry.__new__(Registry)
    monkeypatch.setattr(registry, "_server", SimpleNamespace(run_artifacts=lambda _run: shelf), raising=False)
    version: Any = SimpleNamespace(model="m", number=1, run_id="r")
    monkeypatch.setattr(registry, "versions", lambda _model: [version])
    assert [(each.model, each.version) for each in registry.records("m")] == [("m", 1)]
