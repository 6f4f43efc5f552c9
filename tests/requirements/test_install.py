"""The environment is created once and completely. An error has the reason."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from requirements.install import folder, install

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text("")
    return path


def test_an_environment_is_made_and_marked_as_whole(nothing: Path, tmp_path: Path) -> None:
    install(nothing, tmp_path / "venv/a")
    assert (tmp_path / "venv/a/bin/python").exists()
    assert (tmp_path / "venv/a/complete").exists()


@pytest.mark.thorough
def test_two_runs_at_once_make_one_environment(nothing: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv/a"
    program = "import sys, pathlib, requirements.install as i; i.install(*map(pathlib.Path, sys.argv[1:]))"
    command = [sys.executable, "-c", program, str(nothing), str(venv)]

    def run(_: int) -> str:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stderr

    with ThreadPoolExecutor(3) as runs:
        outputs = list(runs.map(run, range(3)))
    assert sum("installing" in text for text in outputs) == 1
    assert (venv / "complete").exists()


@pytest.mark.thorough
def test_an_environment_of_a_killed_run_is_created_again(nothing: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv/a"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").write_text("half written")
    install(nothing, venv)
    assert subprocess.run([venv / "bin/python", "-c", ""], check=False).returncode == 0


def test_a_requirement_that_cannot_be_had_is_one_message_and_no_environment(tmp_path: Path) -> None:
    requirements = tmp_path / "run.txt"
    requirements.write_text(f"./not-there.whl --hash=sha256:{'0' * 64}\n")
    with pytest.raises(SystemExit) as refused:
        install(requirements, tmp_path / "venv/a")
    assert "not-there" in str(refused.value)
    assert "Check that pip reaches" in str(refused.value)
    assert str(tmp_path / "venv/a.log") in str(refused.value)
    assert not (tmp_path / "venv/a/complete").exists()


def test_other_requirements_have_another_directory(
    nothing: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    before = folder(nothing)
    nothing.write_text("six==1.16.0\n")
    assert folder(nothing) != before
    assert folder(nothing).parent == tmp_path / "venv"


def test_no_file_of_the_project_names_a_registry() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    hosts = [".".join(host) for host in (("pypi", "org"), ("files", "pythonhosted", "org"), ("proxy", "golang", "org"))]
    named = [
        (name, host)
        for name in tracked
        for host in hosts
        if (ROOT / name).is_file() and host in (ROOT / name).read_text(errors="replace")
    ]
    assert tracked
    assert named == []
