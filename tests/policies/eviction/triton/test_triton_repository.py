import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.eviction import DISK_FACTOR
from tidegate_contracts.triton import LEAST_MODEL_BYTES
from tidegate_eviction.staging.sources import RepositoryError
from tidegate_eviction.triton.repository import ModelFiles, TritonRepository, versions_to_serve
from tritonclient.grpc import model_config_pb2

ENSEMBLE = """\
platform: "ensemble"
ensemble_scheduling {
  step { model_name: "first" model_version: -1 }
  step { model_name: "second" model_version: -1 }
  step { model_name: "first" model_version: -1 }
}
"""


def model(root: Path, name: str, versions: tuple[int, ...] = (1,), config: str | None = "", size: int = 10) -> Path:
    folder = root / name
    for version in versions:
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.bin").write_bytes(b"x" * size)
    if config is not None:
        (folder / "config.pbtxt").write_text(config)
    return folder


def look(root: Path, name: str, wanted: tuple[int, ...] = ()) -> ModelFiles:
    found = TritonRepository(str(root)).look(name, wanted)
    assert found is not None
    return found


def test_directories_that_are_no_versions_count_for_all_versions(tmp_path: Path) -> None:
    folder = model(tmp_path, "a", (2,))
    for name in ("03", "old", "1x"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
        os.truncate(folder / name / "file", 1 << 30)
    found = look(tmp_path, "a")
    assert (found.versions, found.estimate_bytes) == ((2,), int((10 + (3 << 30)) * DISK_FACTOR))


def test_wanted_versions_are_the_union_and_nothing_else(tmp_path: Path) -> None:
    model(tmp_path, "a", (1, 2, 3), 'name: "a"\nbackend: "python"\nversion_policy { latest { num_versions: 2 } }\n')
    found = look(tmp_path, "a", (3, 1))
    assert found.versions == (1, 3)
    assert found.override is not None
    assert json.loads(found.override) == {
        "name": "a",
        "backend": "python",
        "version_policy": {"specific": {"versions": ["1", "3"]}},
    }
    assert look(tmp_path, "a", (2, 3)).override is None, "the configuration loads these anyway"


def test_a_wanted_version_that_is_missing_is_requested_anyway(tmp_path: Path) -> None:
    model(tmp_path, "a", (1,))
    found = look(tmp_path, "a", (1, 7))
    assert (found.versions, found.override) == ((1,), None)


def test_a_configuration_of_a_newer_triton_is_never_cut(tmp_path: Path) -> None:
    model(tmp_path, "a", (1, 2), 'backend: "python"\nsomething_new { x: 1 }\n')
    assert look(tmp_path, "a").problem == ""
    assert look(tmp_path, "a", (2,)).problem == ""
    found = look(tmp_path, "a", (1,))
    assert found.override is None
    assert "fields that this policy does not know" in found.problem


def test_an_ensemble_brings_its_parts_and_theirs_once(tmp_path: Path) -> None:
    model(tmp_path, "whole", config=ENSEMBLE)
    model(tmp_path, "first")
    model(tmp_path, "second", config=ENSEMBLE.replace("first", "third").replace("second", "whole"))
    model(tmp_path, "third")
    found = look(tmp_path, "whole")
    assert found.parts == ("first", "second", "third"), "a part that leads back is no part"
    assert found.estimate_bytes == 0
    assert look(tmp_path, "first").estimate_bytes == LEAST_MODEL_BYTES


@pytest.mark.parametrize(
    ("config", "size", "expected"),
    [
        ('backend: "python"', 10, None),
        ('backend: "vllm"', 10, None),
        ('backend: "tensorrtllm"', 10, None),
        ('backend: "python"', 100 << 20, int(((100 << 20) + 17) * DISK_FACTOR)),  # 17: the configuration.
        ('backend: "onnxruntime"', 10, LEAST_MODEL_BYTES),
        ('platform: "tensorrt_plan"', 10, LEAST_MODEL_BYTES),
        ("", 10, LEAST_MODEL_BYTES),
    ],
)
def test_the_size_of_code_without_weights_is_unknown(
    tmp_path: Path, config: str, size: int, expected: int | None
) -> None:
    folder = model(tmp_path, "a", config=config)
    os.truncate(folder / "1" / "model.bin", size)
    assert look(tmp_path, "a").estimate_bytes == expected


def test_code_that_triton_finds_by_its_name_has_no_known_size_either(tmp_path: Path) -> None:
    (model(tmp_path, "a", config=None) / "1" / "model.py").touch()
    assert look(tmp_path, "a").estimate_bytes is None


def test_a_new_part_makes_a_new_ensemble(tmp_path: Path) -> None:
    model(tmp_path, "whole", config=ENSEMBLE)
    for name in ("first", "second"):
        model(tmp_path, name)
    before = look(tmp_path, "whole").stamp
    assert look(tmp_path, "whole").stamp == before
    (tmp_path / "second" / "2").mkdir()
    (tmp_path / "second" / "2" / "model.bin").write_bytes(b"new")
    assert look(tmp_path, "whole").stamp != before


@pytest.mark.parametrize(
    ("path", "content", "another"),
    [
        ("3/model.bin", "a version that is not loaded", False),
        ("1/__pycache__/model.cpython-311.pyc", "what a load leaves behind", False),
        ("1/model.bin", "other", True),
        ("1/more.bin", "a new file", True),
        ("shared.txt", "what all versions need", True),
    ],
)
def test_only_loaded_files_change_the_content(tmp_path: Path, path: str, content: str, another: bool) -> None:
    file = model(tmp_path, "a", (1, 2)) / path
    before = look(tmp_path, "a", (1,)).stamp
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    assert (look(tmp_path, "a", (1,)).stamp != before) is another


def test_an_older_tree_is_another_content(tmp_path: Path) -> None:
    file = model(tmp_path, "a") / "1" / "model.bin"
    stamps = set()
    for second in (2_000_000_000, 1_000_000_000):
        os.utime(file, (second, second))
        stamps.add(look(tmp_path, "a").stamp)
    assert len(stamps) == 2


def test_a_missing_model_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert [TritonRepository(str(tmp_path)).look(name) for name in ("a", "file", "", "..", ".", "a/b", "a\0")] == [
        None
    ] * 7


def config(policy: dict[str, Any]) -> Any:
    return model_config_pb2.ModelConfig(version_policy=policy)


@given(st.sets(st.integers(1, 50)).map(sorted).map(tuple), st.integers(0, 5), st.sets(st.integers(1, 50)))
def test_versions_are_chosen_as_triton_chooses(there: tuple[int, ...], newest: int, wanted: set[int]) -> None:
    assert versions_to_serve(config({"all": {}}), there) == there
    assert versions_to_serve(config({"latest": {"num_versions": newest}}), there) == there[-max(1, newest) :]
    assert versions_to_serve(config({"specific": {"versions": wanted}}), there) == tuple(sorted(wanted & {*there}))
    assert versions_to_serve(model_config_pb2.ModelConfig(), there) == there[-1:]


@pytest.mark.parametrize("config", ["backend: [", "a {" * 20_000, "a {" * 1000 + "}" * 1000])
def test_an_invalid_configuration_is_named(tmp_path: Path, config: str) -> None:
    model(tmp_path, "a", config=config)
    with pytest.raises(RepositoryError, match=r"a/config\.pbtxt is not a model configuration"):
        TritonRepository(str(tmp_path)).look("a")


def test_a_configuration_that_is_no_file_or_has_no_end_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(model(tmp_path, "pipe", config=None) / "config.pbtxt")
    (model(tmp_path, "zeros", config=None) / "config.pbtxt").symlink_to("/dev/zero")
    os.truncate(model(tmp_path, "long") / "config.pbtxt", 1 << 40)
    for name, why in (("pipe", "not a regular file"), ("zeros", "not a regular file"), ("long", "larger than")):
        with pytest.raises(RepositoryError, match=why):
            TritonRepository(str(tmp_path)).look(name)


def test_parts_of_parts_are_found_however_many_there_are(tmp_path: Path) -> None:
    number = 1500
    for each in range(number):
        steps = f'step {{ model_name: "m{each + 1}" }} step {{ model_name: "m0" }}'
        model(tmp_path, f"m{each}", config=f"ensemble_scheduling {{ {steps} }}")
    assert len(look(tmp_path, "m0").parts) == number - 1
