"""The folder of a rendering: whose it is, what is in it, and what is left of a run that is stopped."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollout import output, render

from .conftest import Call, Edit, Patch, Tree

# ---- folders that are not ours ----


def test_a_folder_of_somebody_else_is_refused(out: Path, up: Call) -> None:
    out.mkdir(parents=True)
    (out / "thesis.txt").write_text("mine", "utf-8")
    ended = up(code=1)
    assert f"{out} is not empty and was not made by Tidegate" in ended.err
    assert "thesis.txt" in ended.err
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    (out / "thesis.txt").unlink()
    assert up().code == 0, "an empty folder is taken"


@pytest.mark.parametrize("place", ["notes.txt", "dev-lab/kustomization.yaml", ".git/HEAD"])
def test_files_of_somebody_else_among_ours_are_not_lost(rendered: Path, place: str, up: Call) -> None:
    (rendered / place).parent.mkdir(exist_ok=True)
    (rendered / place).write_text("mine", "utf-8")
    assert place.split("/")[0] in up(code=1).err
    assert (rendered / place).read_text("utf-8") == "mine"


def marker(stack: str, file: str = "a.yaml", definition: str = "d") -> str:
    stacks = {stack: [file]}
    return json.dumps({"format": 2, "definition": definition, "stacks": stacks})


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"format": 2}',
        '{"format": 2, "stacks": {"a": 3}, "definition": ""}',
        "[" * 200_000,
        *(marker(name) for name in ("", ".", "../../etc", "/etc", "a\0", "\ud800")),
        marker("a", "../a.yaml"),
        marker("a", definition="\0"),
        marker("a", definition="\ud800"),
        '{"format": 99}',
    ],
    ids=range(14),
)
def test_a_marker_that_cannot_be_understood_is_no_leave_to_write(rendered: Path, text: str, up: Call) -> None:
    (rendered / output.MARKER).write_text(text, "utf-8")
    ended = up(code=1)
    assert "cannot be understood: another version of Tidegate wrote it, or the folder is not ours." in ended.err


def test_a_file_in_the_folders_place_is_refused(call: Call, definition: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", "utf-8")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        ended = call("render", definition, "--out", place, code=1)
        assert str(tmp_path / "file") in ended.err


def test_a_link_to_a_folder_stays_a_link(call: Call, definition: Path, tmp_path: Path, edit: Edit) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert call("render", definition, "--out", tmp_path / "link").code == 0
    edit('proxy, tag: "1"', 'proxy, tag: "2"')
    call("render", definition, "--out", tmp_path / "link", code=0)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / output.MARKER).is_file()


@pytest.mark.parametrize(
    "edited",
    [
        "x: 2026-13-45",
        "{kind: Namespace, metadata: {name: tidegate-dev, 1: x, null: y, 2026-01-01: z}}",
        "{kind: Namespace, metadata: {name: tidegate-dev, namespace: [a]}}",
    ],
    ids=range(3),
)
def test_whatever_a_hand_wrote_into_a_file_is_compared_and_written_anew(
    rendered: Path, tree: Tree, edited: str, up: Call, preview: Call
) -> None:
    before = tree(rendered)
    (rendered / "dev-lab/00-namespace-tidegate-dev.yaml").write_text(edited, "utf-8")
    assert preview().code == 0
    assert up().code == 0
    assert tree(rendered) == before


@pytest.mark.parametrize("make_it", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_a_files_place_is_not_removed(
    rendered: Path, make_it: Callable[[Path], None], up: Call
) -> None:
    file = rendered / "dev-lab/00-namespace-tidegate-dev.yaml"
    file.unlink()
    make_it(file)
    assert f"holds what Tidegate did not write: dev-lab/{file.name}." in up(code=1).err
    assert file.exists()


# ---- stopping ----


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
    assert (ended.code, ended.err) == (130, "stopped; nothing was changed\n")


@pytest.mark.parametrize(
    ("owner", "step", "error"),
    [
        (os, "replace", OSError(16, "Device or resource busy")),
        (Path, "write_bytes", OSError(27, "File too large")),  # as of a full disk
    ],
)
def test_a_rendering_that_cannot_be_written_is_undone(
    owner: Any, step: str, error: OSError, rendered: Path, edit: Edit, tree: Tree, monkeypatch: Patch, up: Call
) -> None:
    before = tree(rendered.parent)
    real = getattr(owner, step)

    def fail(source: Path, rest: Any) -> None:
        if "new" in source.parts[-3:]:
            raise error
        real(source, rest)

    monkeypatch.setattr(owner, step, fail)
    edit('proxy, tag: "1"', 'proxy, tag: "2"')
    ended = up()
    assert (ended.code, f"is as it was: {error.strerror}" in ended.err) == (1, True)
    assert tree(rendered.parent) == before
