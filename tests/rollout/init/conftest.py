"""What the tests of `make init` share: this code in a git repository, and the processes that people would start."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from requirements.install import folder
from tests.docs.test_ci import git, surroundings

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Program:
    """A repository of Tidegate, and a cache folder of its own, in which what is installed is shared."""

    repository: Path
    cache: Path

    def make(self, where: Path, *words: str, code: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run make in a folder, as somebody would who has no variable of the tests set."""
        more = {"TIDEGATE_CACHE": str(self.cache), "GIT_CONFIG_GLOBAL": os.devnull, **environment}
        command, told = ["make", *words], surroundings() | more
        done = subprocess.run(
            command, cwd=where, env=told, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def platform(self, where: Path, *settings: str) -> Path:
        """Write a platform as `make init` does, and commit it."""
        self.make(self.repository, "init", f"DIR={where}", f"TIDEGATE_REPOSITORY={self.repository}", *settings)
        commit(where, "our platform")
        return where


def commit(where: Path, message: str) -> str:
    git(where, "add", "--all")
    git(where, "commit", "--quiet", f"--message={message}")
    return git(where, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """This code, as it is now, in a repository with one commit."""
    root = tmp_path_factory.mktemp("tidegate")
    made = Program(root / "repository", root / "cache")
    made.cache.mkdir()
    venvs = folder(ROOT / "requirements/run.txt").parent
    venvs.mkdir(parents=True, exist_ok=True)
    for name in ("venv", "tools", "bytecode"):
        (made.cache / name).symlink_to(venvs.with_name(name))
    for name in git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if (ROOT / name).is_file():
            (made.repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, made.repository / name, follow_symlinks=False)
    git(root, "init", "--quiet", "--initial-branch=main", str(made.repository))
    commit(made.repository, "as it is now")
    return made
