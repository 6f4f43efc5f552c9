import shutil
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.eviction import ManagedModel
from tidegate_contracts.triton import LEAST_MODEL_BYTES
from tidegate_eviction.core.messages import ModelSpec
from tidegate_eviction.serving.catalog import Catalog
from tidegate_eviction.serving.footprints import Footprints
from tidegate_eviction.triton.repository import ModelFiles, TritonRepository

from ..rigs.running_policy import pool, write_models


def specs(catalog: Catalog, footprints: Footprints | None = None) -> dict[str, ModelSpec]:
    return catalog.specs(catalog.look({}), footprints or Footprints(Path("/nowhere")))


def test_a_version_that_is_missing_is_loaded_when_it_appears(tmp_path: Path) -> None:
    write_models(tmp_path, "a")
    catalog = Catalog(pool(tmp_path, ManagedModel(name="a", versions=(1, 2))))
    before = specs(catalog)["a"]
    assert before.versions == (1,)
    shutil.copytree(tmp_path / "models" / "a" / "1", tmp_path / "models" / "a" / "2")
    after = specs(catalog)["a"]
    assert after.versions == (1, 2)
    assert after.stamp != before.stamp
    shutil.rmtree(tmp_path / "models" / "a")
    (tmp_path / "models" / "a").mkdir()
    assert specs(catalog)["a"].versions == (1, 2), "never another one instead"


def test_sizes_are_measured_before_they_are_guessed(tmp_path: Path) -> None:
    write_models(tmp_path, "a")
    catalog = Catalog(pool(tmp_path, "a"))
    learned = Footprints(Path("/nowhere"))
    spec = specs(catalog, learned)["a"]
    assert (spec.estimate_bytes, spec.estimate_from, spec.load_seconds) == (LEAST_MODEL_BYTES, "estimated", None)
    learned.learn("a", spec.stamp, 700, 1)
    learned.learn("a", spec.stamp, 600, 2)
    spec = specs(catalog, learned)["a"]
    assert (spec.estimate_bytes, spec.estimate_from, spec.load_seconds) == (700, "measured", 2)
    (tmp_path / "models" / "a" / "1" / "model.bin").write_bytes(b"other")
    spec = specs(catalog, learned)["a"]
    assert (spec.estimate_bytes, spec.estimate_from) == (700, "estimated")


def test_a_load_from_an_invalid_directory_fails_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_models(tmp_path, "a", config="backend: [")
    catalog = Catalog(pool(tmp_path, "a"))
    seen = catalog.look(catalog.look({}))
    assert caplog.text.count("model a cannot be loaded") == 1, "it is logged once"
    broken = catalog.specs(seen, Footprints(Path("/nowhere")))["a"]
    assert broken.estimate_from == "unknown"
    assert "config.pbtxt is not a model configuration" in broken.problem
    (tmp_path / "models" / "a" / "config.pbtxt").write_text("")
    repaired = specs(catalog)["a"]
    assert repaired.stamp != broken.stamp, "what is repaired is tried again"
    assert not repaired.problem


def test_a_file_system_that_fails_takes_no_model_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    write_models(root, "a", "b")
    catalog = Catalog(pool(root, "a", "b"))
    before = catalog.look({})
    real = TritonRepository.look

    def stale(self: TritonRepository, name: str, *more: Any) -> ModelFiles | None:
        if name == "a":
            raise OSError(116, "Stale file handle")
        return real(self, name, *more)

    monkeypatch.setattr(TritonRepository, "look", stale)
    assert catalog.look(before) == before
    monkeypatch.undo()
    shutil.rmtree(root)
    assert catalog.look(before) == before, "an unmounted volume is no empty repository"
    (root / "models").mkdir(parents=True)
    assert catalog.look(before) == {}
