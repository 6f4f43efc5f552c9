"""Each package runs where the line that its page documents has installed it into an empty environment, and no more."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 900
_TRACE = "python -m tidegate_eviction generate --out zoo.csv.gz --models 6 --requests 400 --zipf 1.1 --seed 7"
_SIMULATE = "python -m tidegate_eviction simulate --trace zoo.csv.gz --capacity 40%"
COMMANDS = {
    "proxy/README.md": ["python -m tidegate_proxy --help", "python -m tidegate_proxy key new"],
    "policies/eviction/README.md": [
        "python -m tidegate_eviction serve --help",
        _TRACE,
        f"{_SIMULATE} --policy lru-idle",
    ],
    "docs/simulator.md": [_TRACE, f"{_SIMULATE} --compare"],
    "client/README.md": [
        "tidegate --help",
        "tidegate model new fraud model.py --input X:FP32:1 --output Y:FP32:1",
        "tidegate model check fraud",
        "python -c 'import pandas; from tidegate.life.deploy import deploy; from tidegate.registry import Registry'",
    ],
}
"""The commands that then run, by page, in a directory with a `model.py`."""
EXTRAS = {
    "pandas": "import pandas",
    "s3": "import boto3",
    "signing": "import model_signing.signing, model_signing.verifying",
    "sklearn": "import pandas, skl2onnx, onnxruntime",
}
"""Imports that work after the installation of the client's extra, but not with the extras before it."""
MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"


def documented(page: str) -> list[str]:
    """Return what a page has pip install, as words of a shell."""
    first, *others = lines(page)
    assert all(each.startswith("./client[") for each in map("".join, others)), others
    return first


def lines(page: str) -> list[list[str]]:
    """Return each line that installs packages of this repository, as words of a shell."""
    found = re.findall(r"pip install ((?=[^`#\n]*\./)[^`#\n]*)", (ROOT / page).read_text("utf-8"))
    return [shlex.split(each) for each in found]


def packages(page: str) -> set[str]:
    return {word.removeprefix("./").partition("[")[0] for word in documented(page)}


def empty(tmp_path: Path) -> Callable[..., None]:
    """Create an empty environment next to a copy of the packages. Return a function that runs a command in it."""
    venv.create(tmp_path / "venv", with_pip=True)
    commands = tmp_path / "venv" / "bin"
    (tmp_path / "model.py").write_text(MODEL)
    ours = ("PYTHON", "TIDEGATE", "MLFLOW", "DOMINO", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PIP_NO_COMPILE"] = "1"  # Python compiles only the modules that run.
    environment["PATH"] = f"{commands}{os.pathsep}{environment['PATH']}"

    def run(folder: Path, *words: str) -> None:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"

    for package in every_package():  # pip builds where the source lies
        shutil.copytree(ROOT / package, tmp_path / "checkout" / package)
    return run


def every_package() -> set[str]:
    folders = (file.parent.relative_to(ROOT) for file in ROOT.glob("*/**/pyproject.toml"))
    return {each.as_posix() for each in folders if each.parts[0] not in ("build", ".venv")}


@pytest.mark.thorough
@pytest.mark.parametrize("page", COMMANDS)
def test_a_package_runs_after_its_documented_line_alone(page: str, tmp_path: Path) -> None:
    run = empty(tmp_path)
    run(tmp_path / "checkout", "pip", "install", "--quiet", "--disable-pip-version-check", *documented(page))
    for command in COMMANDS[page]:
        run(tmp_path, *shlex.split(command))


@pytest.mark.thorough
def test_an_extra_installs_its_feature(tmp_path: Path) -> None:
    run = empty(tmp_path)
    quiet = "--quiet", "--disable-pip-version-check"
    run(tmp_path / "checkout", "pip", "install", *quiet, "./client")
    run(tmp_path, "tidegate", "--help")
    for extra, needs in EXTRAS.items():
        with pytest.raises(AssertionError, match="ModuleNotFoundError"):
            run(tmp_path, "python", "-c", needs)
        run(tmp_path / "checkout", "pip", "install", *quiet, f"./client[{extra}]")
        run(tmp_path, "python", "-c", needs)


def test_every_page_installs_the_client_in_the_same_way() -> None:
    assert documented("docs/models.md") == documented("client/README.md")


def test_every_package_of_the_repository_is_installed_by_a_page() -> None:
    assert every_package() == {package for page in COMMANDS for package in packages(page)}


def test_every_line_that_a_page_has_people_install_is_tested() -> None:
    tested = [documented(page) for page in COMMANDS] + [["./client"]] + [[f"./client[{extra}]"] for extra in EXTRAS]
    readmes = [ROOT / package / "README.md" for package in every_package()]
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *filter(Path.exists, readmes)):
        for line in lines(page.relative_to(ROOT).as_posix()):
            assert line in tested, page


def test_every_extra_of_a_package_is_tested() -> None:
    there, tested = set(), {f"client[{extra}]" for extra in EXTRAS}
    for package in every_package():
        project = tomllib.loads((ROOT / package / "pyproject.toml").read_text("utf-8"))["project"]
        there |= {f"{package}[{extra}]" for extra in project.get("optional-dependencies", ())}
    for page in COMMANDS:
        tested |= {word.removeprefix("./") for word in documented(page) if "[" in word}
    assert there == tested
