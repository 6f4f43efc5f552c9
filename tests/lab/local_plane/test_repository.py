"""Models are published whole: nobody sees half of one, and what is there is never touched."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.local_plane.repository import CONFIG, Model, publish


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text("first")
    return file


def model(program: Path, *versions: int) -> Model:
    return Model(
        "m",
        program,
        [("INPUT", "TYPE_FP32", "-1")],
        [("OUTPUT", "TYPE_FP32", "-1")],
        f"# {max(versions)}\n",
        versions=versions,
    )


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    (tmp_path / "models").mkdir()
    yield tmp_path / "models", tmp_path / "staging"
    assert not any((tmp_path / "staging").iterdir())


def test_a_model_comes_with_all_that_it_has(program: Path, folders: tuple[Path, Path]) -> None:
    publish(model(program, 1), *folders)
    assert sorted(str(file.relative_to(folders[0])) for file in folders[0].rglob("*")) == [
        "m", "m/1", "m/1/model.py", f"m/{CONFIG}",
    ]  # fmt: skip


def test_a_version_is_added_and_those_that_are_there_stay(program: Path, folders: tuple[Path, Path]) -> None:
    publish(model(program, 1), *folders)
    program.write_text("second")
    publish(model(program, 1, 2), *folders)
    assert (folders[0] / "m" / "1" / "model.py").read_text() == "first"
    assert (folders[0] / "m" / "2" / "model.py").read_text() == "second"
    assert (folders[0] / "m" / CONFIG).read_text().endswith("# 2\n")


def test_who_looks_meanwhile_never_sees_half(program: Path, folders: tuple[Path, Path]) -> None:
    """A configuration that names a version comes after it."""
    halves: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                config = (folders[0] / "m" / CONFIG).read_text()
            except FileNotFoundError:
                if (folders[0] / "m").exists() and not (folders[0] / "m" / CONFIG).exists():
                    halves.append("no configuration")
                continue
            newest = config.rpartition("# ")[2].strip()
            if not newest or not (folders[0] / "m" / newest / "model.py").exists():
                halves.append(f"no version {newest!r}")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for newest in range(1, 60):
            publish(model(program, *range(1, newest + 1)), *folders)
    finally:
        over.set()
        thread.join()
    assert halves == []
