from pathlib import Path
from typing import Any

import pytest
from tidegate.entries.findings import errors
from tidegate.entries.text import parse_config
from tidegate.errors import UsageError
from tidegate.life.checks import check_beside, check_fits, check_staged, refuse
from tidegate.life.target import places
from tidegate.publishing.folder import FolderRepository
from tidegate_contracts.environments import PoolFacts
from tidegate_contracts.manifest import Manifest, ManifestFile, make_manifest

from .entries import CONFIG, write_entry
from .test_life_target import MODEL, dataset, known, plane

MIB = 1 << 20


def manifest(size: int) -> Manifest:
    return make_manifest(MODEL, [
        ManifestFile(path="1/model.onnx", size=size, sha256="0" * 64),
        ManifestFile(path="warmup/data", size=1 << 40, sha256="0" * 64),
    ])  # fmt: skip


def fits(config: str, size: int = 0, peak: int = 1, footprint: int | None = None, **pool: Any) -> list[str]:
    made = plane("east", dataset("a"), footprint_bytes=footprint)
    facts = PoolFacts.model_validate({"name": "main", "loading": "preload", "gpu": False} | pool)
    server = made.servers[0].model_copy(update={"pools": (facts,)})
    (place,) = places(*_of(made.model_copy(update={"servers": (server,)})))
    found = check_fits(place, parse_config(config), manifest(size), peak)
    return [f"{each.severity}: {each.what}" for each in found]


def _of(made: Any) -> Any:
    of, all_of_them = known(made)
    return of, MODEL, all_of_them


@pytest.mark.parametrize(
    "config",
    ["instance_group { kind: KIND_GPU }", 'platform: "tensorrt_plan"', 'backend: "tensorrtllm"', 'backend: "dali"'],
)
def test_what_wants_a_gpu_is_refused_where_there_is_none(config: str) -> None:
    (said,) = fits(config)
    assert said.startswith("error: ")
    assert "east/preload/main has none" in said
    assert fits(config, gpu=True) == []
    assert fits("instance_group { kind: KIND_CPU }") == []


def test_a_model_that_is_larger_than_its_slice_is_refused() -> None:
    (said,) = fits("", size=900 * MIB, memory_bytes=1024 * MIB)
    assert said == (
        "error: it needs 1,125 MiB (estimated from its files), and the pool east/preload/main has room for 1,024 MiB"
    )
    assert fits("", size=800 * MIB, memory_bytes=1024 * MIB) == []
    assert "(declared)" in fits("", footprint=11, capacity_bytes=10, memory_bytes=99)[0]
    assert fits("", size=1 << 50) == []


def test_versions_that_may_not_fit_beside_each_other_are_a_warning() -> None:
    (said,) = fits("", footprint=300 * MIB, memory_bytes=1000 * MIB, peak=4)
    assert said.startswith("warning: while it comes in, 4 versions are loaded at one time, which may need 1,200 MiB")
    assert fits("", footprint=300 * MIB, memory_bytes=1000 * MIB, peak=3) == []


def test_versions_whose_tensors_differ_cannot_serve_beside_each_other() -> None:
    one, other = CONFIG.format(name=MODEL, batch=4), CONFIG.format(name=MODEL, batch=8)
    (found,) = errors(check_beside(one, other, 1, 2))
    assert "versions 1 and 2 cannot be served beside each other: max_batch_size: 4 → 8" in found.what
    assert check_beside(one, one + "dynamic_batching { max_queue_delay_microseconds: 5 }", 1, 2) == []


def test_parameters_that_differ_are_told_and_no_more() -> None:
    one = CONFIG.format(name=MODEL, batch=4)
    findings = check_beside(one, one + 'parameters { key: "x" value { string_value: "1" } }', 1, 2)
    assert errors(findings) == []
    assert refuse(findings, "", "")[0].startswith("config.pbtxt: version 1 runs under version 2's parameters")


def test_an_entry_is_checked_as_tidegate_model_check_does(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    repository = FolderRepository(tmp_path / "models")
    entry = write_entry(tmp_path / "staged", 3)
    (entry / "config.pbtxt").write_text(CONFIG.format(name=MODEL, batch=4).replace("max_batch", "max_bach"))
    with pytest.raises(UsageError, match=r"config\.pbtxt:3: .*max_bach_size"):
        refuse(check_staged(entry, MODEL, repository), "it cannot be served", "there")
