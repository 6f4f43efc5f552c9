"""What a git revision's own code makes of a definition.

Where no code lies beside it, the program that its Makefile pins takes its place; where none is pinned, this one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stacks.command import FAILED, WRONG_INPUT, CommandError
from stacks.problems import escaped
from stacks.validate import read_definition

from .. import processes
from ..render import render
from ..terminal import note

SECONDS = 600
_TAIL = 12
_PASSED_ON = "PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|TMPDIR|LANG|LANGUAGE|LC_[A-Z]+|XDG_CACHE_HOME|TIDEGATE_CACHE|PYTHON"
"""Environment variables that another revision's code gets: it needs no token of a cloud, a cluster or a registry."""
_FETCHING = (
    r"(?:https?|no|all)_proxy|(?:HTTPS?|NO|ALL)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|SSH_AUTH_SOCK|GIT_SSH(?:_COMMAND)?|GIT_SSL_CAINFO|PIP_[A-Z_]+|UV_[A-Z_]+"
)
"""What git, pip and uv need beyond that to fetch the program that a revision pins."""
_ROOT = Path(__file__).resolve().parents[2]


class NothingToCompare(CommandError):
    """A revision exists, but has nothing that could be rendered: against it, everything is new."""


@contextmanager
def rendering_of(revision: str, definition: Path) -> Iterator[tuple[str, Path]]:
    """Yield a revision's commit, and a folder with a rendered folder for each stack.

    Raises NothingToCompare where the revision has no such definition, or one that is wrong.
    """
    folder = definition.resolve().parent
    if not folder.is_dir():
        raise CommandError(f"{escaped(str(folder))} is no folder.")
    lost = f"{escaped(str(definition))} lies in no git repository, so there is no revision to compare with:"
    unknown = f"git knows no revision {escaped(revision)} here: `git branch --all` and `git log --oneline` list some,"
    unknown += " but for a repository without a commit, which has none."
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
        # A link that leads out of the revision leads to what is no part of it.
        for path in [*tree.rglob("*")]:
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(tree.resolve()):
                path.unlink()
        if not (tree / wanted).is_file():
            raise NothingToCompare(
                f"{escaped(revision)} has no {escaped(str(wanted))}, so there is nothing to compare with."
            )
        root = next((root for root in (tree / wanted).parents if (root / "rollout/__main__.py").is_file()), None)
        has_code = root is not None and root.is_relative_to(tree)
        pinned = next((folder for folder in (tree / wanted).parents if _pins(folder / "Makefile")), None)
        if root is not None and has_code:
            command, using = _by_code(root, tree / wanted, rendered), "its own code"
        elif pinned is not None and pinned.is_relative_to(tree):
            command, using = _by_make(pinned, tree / wanted, rendered), "the Tidegate that it pins"
        else:
            command, using = _by_code(_ROOT, tree / wanted, rendered), "this program"
        note(f"rendering {escaped(revision)} ({commit[:10]}) with {using} …")
        _render(revision, command)
        yield commit, rendered


def render_for_previews(definition: Path, out: Path) -> None:
    """Write what a definition renders to and hold it to no guardrail: later revisions are compared with it."""
    read = read_definition(definition)
    for stack in read.stacks:
        (out / stack.name).mkdir(parents=True)
        for name, text in render(stack, read).files.items():
            (out / stack.name / name).write_bytes(text.encode())


@dataclass(frozen=True)
class _Command:
    words: list[str | Path]
    folder: Path
    environment: Mapping[str, str]
    passed_on: str = _PASSED_ON  # Pattern of the environment variables that it gets.


def _by_code(root: Path, definition: Path, out: Path) -> _Command:
    path = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")])}
    return _Command([sys.executable, "-m", "rollout", "render", definition, "--out", out], root, path)


def _pins(makefile: Path) -> bool:
    return makefile.is_file() and "\nTIDEGATE_REVISION :=" in makefile.read_text("utf-8", "replace")


def _by_make(folder: Path, definition: Path, out: Path) -> _Command:
    words: list[str | Path] = ["make", "--no-print-directory", ".rendering", f"DEFINITION={definition}", f"OUT={out}"]
    if reached := os.environ.get("TIDEGATE_REPOSITORY"):  # where this make was told to fetch from, such as a mirror
        words.append(f"TIDEGATE_REPOSITORY={reached.replace('$', '$$')}")
    return _Command(words, folder, {"MAKEFLAGS": "", "MAKELEVEL": ""}, f"{_PASSED_ON}|{_FETCHING}")


def _render(revision: str, command: _Command) -> None:
    try:
        done = processes.run(
            command.words,
            seconds=SECONDS,
            cwd=command.folder,
            environment=command.environment,
            passing=re.compile(command.passed_on).fullmatch,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"{escaped(revision)} cannot be rendered: no end after {SECONDS} s.") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        # make ends with 2 whatever failed, and says the code of what did.
        of_make = (
            re.fullmatch(r"make: \*\*\* .* Error ([0-9]+)", lines.pop())
            if command.words[0] == "make" and lines
            else None
        )
        code = int(of_make[1]) if of_make else done.returncode
        said = "".join(f"\n    {escaped(line)}" for line in lines[-_TAIL:])
        error = NothingToCompare if code == WRONG_INPUT else CommandError
        raise error(
            f"{escaped(revision)} cannot be rendered: its own `rollout render` ended with exit code {code}:{said}"
        )


def _git(folder: Path, *arguments: str, error: str, code: int = FAILED, more: Mapping[str, str] | None = None) -> str:
    # A hook or an alias may have pointed git elsewhere; what counts is where the definition lies.
    env = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_WORK_TREE")}
    env |= more or {}
    command = ["git", "-C", str(folder), *arguments]
    try:  # with what is no UTF-8 as Python has it in paths
        done = subprocess.run(command, env=env, capture_output=True, text=True, errors="surrogateescape", check=False)
    except FileNotFoundError:
        raise CommandError("comparing with a revision needs git, and there is none on the PATH.") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CommandError(error + (f"\n    {escaped(said[-1])}" if said else ""), code)
    return done.stdout.strip()
