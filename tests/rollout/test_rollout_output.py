import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tidegate import output
from tidegate_eviction.simulate import report

from rollout import render, terminal

from .conftest import Call, Edit, Patch, Tree

# ---- foreign files ----


def test_a_foreign_file_with_the_same_path_is_refused_and_others_stay(rendered: Path, up: Call) -> None:
    for place in ("notes.txt", "dev-lab/kustomization.yaml", "mine/00-namespace.yaml"):
        (rendered / place).parent.mkdir(exist_ok=True)
        (rendered / place).write_text("mine", "utf-8")
        up(code=0)
        assert (rendered / place).read_text("utf-8") == "mine"
    ours = rendered / "dev-lab/00-namespace-tidegate-dev.yaml"
    for make in (Path.touch, Path.mkdir, os.mkfifo):
        ours.unlink()
        make(ours)
        mode = ours.stat().st_mode
        assert f"Tidegate did not write {ours}, but would replace it" in up(code=1).err
        assert ours.stat().st_mode == mode
        if make is Path.mkdir:
            ours.rmdir()
            ours.touch()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_instead_of_a_directory_is_refused(call: Call, definition: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine", "utf-8")
    assert str(tmp_path / "file") in call("render", definition, "--out", tmp_path / place, code=1).err


# ---- interruption ----


def test_ctrl_c_while_a_stack_is_evaluated_ends_the_run_after_it(monkeypatch: Patch, up: Call) -> None:
    def stopped(_: object) -> list[dict[str, Any]]:
        signal.raise_signal(signal.SIGINT)
        return []

    render._evaluated.cache_clear()
    monkeypatch.setattr("components.evaluate.evaluate", stopped)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = up()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert (ended.code, ended.err) == (130, "stopped: nothing was changed\n")


def test_a_rendering_that_stopped_half_way_is_completed_by_the_next(
    rendered: Path, edit: Edit, tree: Tree, monkeypatch: Patch, up: Call
) -> None:
    real, written = Path.write_bytes, list[Path]()

    def fail(path: Path, data: Any) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        return real(path, data)

    edit('proxy, tag: "1"', 'proxy, tag: "2"')
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        ended = up(code=1)
    assert f"{rendered} could not be written: No space left on device" in ended.err
    up(code=0)
    assert sum(b"registry.test/proxy:2" in text for text in tree(rendered).values()) == 2


@pytest.mark.parametrize("console", [terminal.console, output.console, report.console])
def test_output_without_a_terminal_has_the_columns_of_the_variable(monkeypatch: Patch, console: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert (width := console().width) >= 120
    for unset in ("", "wide"):
        monkeypatch.setenv("COLUMNS", unset)
        assert console().width == width
    monkeypatch.setenv("COLUMNS", "77")
    assert console().width == 77
