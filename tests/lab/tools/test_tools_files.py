"""Files out of Go modules: CRDs and fixtures, pinned and cached."""

import dataclasses
from pathlib import Path

import pytest

from lab import tools
from lab.tools import files, pins
from lab.tools.programs import PROGRAMS

CRD_MODULES = sorted(name for name, source in files.SOURCES.items() if source.crds)


def test_an_unknown_module_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(tools.UnknownNameError, match="did you mean gateway-api"):
        tools.crd_files("gatewayapi")
    with pytest.raises(tools.UnknownNameError):
        tools.crd_files("pod-security")


def test_the_cache_key_of_files_changes_with_what_pins_them(tmp_path: Path) -> None:
    source = files.SOURCES["keda"]
    before = files.key(source)
    assert files.key(dataclasses.replace(source, patterns=("*.yml",))) != before
    for file in ("go.mod", "go.sum"):
        (tmp_path / file).write_bytes((files.FOLDER / file).read_bytes())
    elsewhere = dataclasses.replace(source, folder=tmp_path)
    assert files.key(elsewhere) == before
    with (tmp_path / "go.mod").open("a") as text:
        text.write("\n")
    assert files.key(elsewhere) != before


def test_what_kwok_plays_is_of_the_version_of_kwok_and_leaves_volumes_to_kubernetes() -> None:
    found = [file.read_text("utf-8") for file in tools.module_files("kwok-stages")]
    assert all("\nkind: Stage\n" in text for text in found)
    kinds = sorted(line.split()[1] for text in found for line in text.splitlines() if line.startswith("    kind: "))
    assert kinds == ["Node", "Node", "Pod", "Pod", "Pod"]
    assert files.version("kwok-stages") == PROGRAMS["kwok"].version


def test_files_that_a_new_version_has_moved_are_an_error_and_not_an_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = dataclasses.replace(files.SOURCES["keda"], root="config/elsewhere")
    monkeypatch.setitem(files.SOURCES, "keda", moved)
    monkeypatch.setattr(files, "_download", lambda *_: tmp_path)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(tools.ToolError, match=r"has no \*\.yaml in config/elsewhere"):
        tools.crd_files("keda")
    assert not list((tmp_path / "cache").rglob("keda"))


def test_a_module_that_cannot_be_downloaded_is_named_with_the_way_out(
    real_go: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(real_go.parent))
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("GOPROXY", "off")
    with pytest.raises(tools.ToolError) as caught:
        tools.crd_files("keda")
    assert "github.com/kedacore/keda/v2" in str(caught.value)
    assert "GOPROXY (now off)" in str(caught.value)


def test_the_longest_required_module_owns_a_package(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(
        "module m\n\ngo 1.26\n\nrequire a.b/c v1.0.0\n\nrequire (\n\ta.b/c/d v2.3.4 // x\n)\n"
    )
    assert pins.module_version("a.b/c/d/cmd/e", tmp_path) == "2.3.4"
    assert pins.module_version("a.b/c/f", tmp_path) == "1.0.0"
