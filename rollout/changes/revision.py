"""Renders a definition of a git revision with the code of that revision.

If the revision does not contain this program's code, the version in its requirements.txt renders it. If that pins no
version, or the same as the working tree, this program does.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stacks.command import FAILED, WRONG_INPUT, CommandError
from stacks.problems import escaped
from stacks.validate import read_definition

from .. import processes
from ..render import render
from ..terminal import note
from ..tools import ToolError
from ..tools.cache import cache_root, digest, once

SECONDS = 600
_TAIL = 12
_PASSED_ON = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|TMPDIR|LANG|LANGUAGE|LC_[A-Z]+|XDG_CACHE_HOME|TIDEGATE_CACHE"
)
"""Environment variables for another revision's code. It needs no token of a cloud, a cluster or a registry."""
_FETCHING = re.compile(
    r"(?:https?|no|all)_proxy|(?:HTTPS?|NO|ALL)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    rf"|SSH_AUTH_SOCK|GIT_SSH(?:_COMMAND)?|GIT_SSL_CAINFO|PIP_[A-Z_]+|{_PASSED_ON.pattern}"
)
"""Additional variables with which git and pip install the pinned version."""
_PIN = "tidegate-platform"
_PROGRAM = "cli/__main__.py"
"""A file of every revision that contains this program's code."""
_ROOT = Path(__file__).resolve().parents[2]


class NothingToCompare(CommandError):
    """A revision exists, but contains nothing to render. Compared with it, everything is new."""


@contextmanager
def rendering_of(revision: str, definition: Path) -> Iterator[tuple[str, Path]]:
    """Yield a revision's commit, and a directory with the rendered directory of each stack. Raises NothingToCompare if
    the revision has no such definition, or one that is wrong."""
    folder = definition.resolve().parent
    if not folder.is_dir():
        raise CommandError(f"{escaped(str(folder))} is not a directory.")
    lost = f"{escaped(str(definition))} is not in a git repository, so there is no revision to compare with:"
    unknown = f"git knows no revision {escaped(revision)} here. `git branch --all` and `git log --oneline` list some."
    unknown += " A repository without a commit has none."
    top = Path(_git(folder, "rev-parse", "--show-toplevel", error=lost))
    what = f"{escaped(revision)}^{{commit}}"
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", what, error=unknown, code=WRONG_INPUT)
    wanted = definition.resolve().relative_to(top.resolve())
    with TemporaryDirectory(prefix="tidegate-") as temporary:
        tree, rendered = Path(temporary) / "tree", Path(temporary) / "rendered"
        index = {"GIT_INDEX_FILE": str(Path(temporary) / "index")}
        unpacked = "git could not unpack the revision"
        _git(top, "read-tree", commit, error=unpacked, more=index)
        _git(top, "checkout-index", "--all", f"--prefix={tree}/", error=unpacked, more=index)
        # Remove links that lead out of the revision.
        for path in [*tree.rglob("*")]:
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(tree.resolve()):
                path.unlink()
        if not (tree / wanted).is_file():
            raise NothingToCompare(
                f"{escaped(revision)} does not contain {escaped(str(wanted))}, so there is nothing to compare with."
            )
        folders = [folder for folder in (tree / wanted).parents if folder.is_relative_to(tree)]
        code = next((folder for folder in folders if (folder / _PROGRAM).is_file()), None)
        pinning = next((folder for folder in folders if _pin(folder)), None)
        root: Path | None = code or _ROOT
        python, using = Path(sys.executable), "its own code" if code else "this program"
        if pinning is not None and code is None and _pin(pinning) != _pin(top / pinning.relative_to(tree)):
            python, root, using = _installed(pinning / "requirements.txt"), None, "the version that it pins"
        note(f"rendering {escaped(revision)} ({commit[:10]}) with {using} …")
        environment = {} if root is None else {"PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")])}
        words: list[str | Path] = [python, "-m", "cli", "render", tree / wanted, "--out", rendered, "--unchecked"]
        failure = f"{escaped(revision)} cannot be rendered"
        _run(words, failure, _PASSED_ON, root or (tree / wanted).parent, environment)
        yield commit, rendered


def render_for_previews(definition: Path, out: Path) -> None:
    """Render a definition without guardrails, for comparison with later revisions."""
    read = read_definition(definition)
    for stack in read.stacks:
        (out / stack.name).mkdir(parents=True)
        for name, text in render(stack, read).files.items():
            (out / stack.name / name).write_bytes(text.encode())


def _pin(folder: Path) -> str:
    """Return the requirement with which a platform pins this program. Empty if there is none."""
    file = folder / "requirements.txt"
    lines = file.read_text("utf-8", "replace").splitlines() if file.is_file() else []
    return next((line.strip() for line in lines if _PIN in line and not line.startswith("#")), "")


def _installed(requirements: Path) -> Path:
    """Return the Python of an environment with the pinned version, which is made once, in the cache directory."""

    def make(venv: Path) -> None:
        note("installing the Tidegate version that it pins …")
        failure = "The Tidegate version that the revision pins cannot be installed"
        pip = (venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run([sys.executable, "-m", "venv", venv], failure, _FETCHING)
        _run([*pip, "install", "-r", requirements], failure, _FETCHING)

    place = cache_root() / "venv" / digest(requirements.read_bytes(), sys.version)
    try:
        once(place, make, "the environment of a pinned Tidegate")
    except ToolError as error:
        raise CommandError(str(error)) from None
    return place / "bin/python"


def _run(
    words: list[str | Path],
    failure: str,
    passing: re.Pattern[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program of the revision. Raise CommandError, or NothingToCompare if its input is wrong."""
    try:
        done = processes.run(words, seconds=SECONDS, cwd=folder, environment=environment, passing=passing.fullmatch)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{failure}: it did not end within {SECONDS} s.") from None
    if done.returncode:
        lines = "".join(f"\n    {escaped(line)}" for line in done.stderr.strip().splitlines()[-_TAIL:])
        error = NothingToCompare if done.returncode == WRONG_INPUT else CommandError
        raise error(f"{failure}: it ended with exit code {done.returncode}:{lines}")


def _git(folder: Path, *arguments: str, error: str, code: int = FAILED, more: Mapping[str, str] | None = None) -> str:
    # A hook or an alias may have pointed git elsewhere, but only the place of the definition counts.
    env = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_WORK_TREE")}
    env |= more or {}
    command = ["git", "-C", str(folder), *arguments]
    try:  # paths that are not UTF-8 must stay as Python has them
        done = subprocess.run(command, env=env, capture_output=True, text=True, errors="surrogateescape", check=False)
    except FileNotFoundError:
        raise CommandError("to compare with a revision, install git: there is none on the PATH.") from None
    if done.returncode:
        output = done.stderr.strip().splitlines()
        raise CommandError(error + (f"\n    {escaped(output[-1])}" if output else ""), code)
    return done.stdout.strip()
