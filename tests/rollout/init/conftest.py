import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from requirements.install import folder
from tests.docs.test_ci import surroundings
from tests.processes import git

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Program:
    """A repository of Tidegate, and a separate cache directory with shared tools."""

    repository: Path
    cache: Path

    def tidegate(
        self, where: Path, *words: object, code: int = 0, python: str = sys.executable, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run the command in a directory, without the variables of the tests. It is that of the repository, or the one
        that another Python has installed."""
        more = {"TIDEGATE_CACHE": str(self.cache), "GIT_CONFIG_GLOBAL": os.devnull, **environment}
        if python == sys.executable:
            more["PYTHONPATH"] = str(self.repository)
        done = subprocess.run(
            [python, "-m", "cli", *map(str, words)], cwd=where, env=surroundings() | more,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def platform(self, where: Path, *options: str) -> Path:
        self.tidegate(self.repository, "init", where, "--repository", self.repository, *options)
        commit(where, "our platform")
        return where


def commit(where: Path, message: str) -> str:
    git(where, "add", "--all")
    git(where, "commit", "--quiet", f"--message={message}")
    return git(where, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
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
