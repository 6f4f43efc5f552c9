"""Users who can write to the registry gain no credentials, no local files, and no influence on other versions."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tidegate.errors import NotFoundError, RefusedError
from tidegate.registry import Registry
from tidegate.registry.artifacts import Artifacts
from tidegate.registry.transfer import PARTIAL, download
from tidegate.registry.version import RECORDS_FOLDER
from tidegate_contracts.manifest import ManifestFile

from tests.client.shelf import Shelf

from .entries import contents, noise

TRACKING = "https://mlflow.example.com/prefix"


def test_the_registrys_credential_goes_to_no_other_server() -> None:
    for uri in (
        "mlflow-artifacts:/1/abc",
        "mlflow-artifacts://mlflow.example.com/1",
        "https://mlflow.example.com:443/1",
    ):
        assert Artifacts(uri, TRACKING).where
    for uri in (
        "https://evil.example.com/api/2.0/mlflow-artifacts/artifacts/1", "https://mlflow.example.com:8443/1",
        "http://mlflow.example.com/api/2.0/mlflow-artifacts/artifacts/1", "mlflow-artifacts://evil.example.com/1",
        "https://mlflow.example.com@evil.example.com/1",
    ):  # fmt: skip
        with pytest.raises(RefusedError, match="on another server"):
            Artifacts(uri, TRACKING)


def test_a_download_is_not_written_through_a_link_that_others_laid(tmp_path: Path) -> None:
    content = noise(1, 100)
    file = ManifestFile(path="1/data", size=100, sha256=hashlib.sha256(content).hexdigest())
    for folder in ("staged", "mine"):
        (tmp_path / folder).mkdir()
    (tmp_path / "staged" / PARTIAL).symlink_to(tmp_path / "mine")
    download(Shelf({"entry/1/data": content}), "entry", [file], tmp_path / "staged", lambda _bytes: None)
    assert contents(tmp_path) == {"staged/1/data": content}
    assert (tmp_path / "mine").is_dir()


def test_forged_records_and_a_deleted_run_do_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(version: int, model: str = "m") -> bytes:
        message = {"what": "deploy", "model": model, "version": version, "who": "eve", "when": "2026-01-01T00:00:00Z"}
        return json.dumps(message).encode()

    late = record(1).replace(b"2026-01-01T00:00:00Z", b"9999-12-31T23:59:59-12:00")
    large = record(1).replace(b'"who"', b'"previous": 1000000000000000000000000000000, "who"')
    files = {"1": record(1), "2": record(2), "3": record(1, "other"), "4": late, "5": large}
    files |= {"6": b"\xff{", "7": b"[" * (1 << 20)}
    shelf = Shelf({f"{RECORDS_FOLDER}/{name}.json": content for name, content in files.items()})

    def run_artifacts(run: str) -> Shelf:
        if run == "gone":
            raise NotFoundError("the run gone cannot be read")
        return shelf

    registry = Registry.__new__(Registry)
    monkeypatch.setattr(registry, "_server", SimpleNamespace(run_artifacts=run_artifacts), raising=False)
    runs = ((1, "r"), (2, "gone"))
    versions: list[Any] = [SimpleNamespace(model="m", number=number, run_id=run) for number, run in runs]
    monkeypatch.setattr(registry, "versions", lambda _model: versions)
    records = registry.records("m")
    assert [(each.model, each.version) for each in records] == [("m", 1)]
    assert [each[-6:] for each in records.unreadable[:4]] == [f"{name}.json" for name in "4567"]
    assert records.unreadable[4:] == ("the history of version 2, whose run gone is gone,",)
