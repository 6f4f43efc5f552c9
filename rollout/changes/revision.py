"""What a git revision's own code makes of a definition; where no code lies beside it, what this program makes of it."""

import os
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

SECONDS = 600
_TAIL = 12
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
    unknown = f"git knows no revision {escaped(revision)} here; `git branch --all` and `git log --oneline` list some."
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
        note(f"rendering {escaped(revision)} ({commit[:10]}) with {'its own code' if has_code else 'this program'} …")
        _render(revision, root if root is not None and has_code else _ROOT, tree / wanted, rendered)
        yield commit, rendered


def render_for_previews(definition: Path, out: Path) -> None:
    """Write what a definition renders to and hold it to no guardrail: later revisions are compared with it."""
    read = read_definition(definition)
    for stack in read.stacks:
        (out / stack.name).mkdir(parents=True)
        for name, text in render(stack, read).files.items():
            (out / stack.name / name).write_bytes(text.encode())


def _render(revision: str, root: Path, definition: Path, out: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "rollout", "render", definition, "--out", out]
    path = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")])}
    try:
        done = processes.run(command, seconds=SECONDS, cwd=root, environment=path)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{escaped(revision)} cannot be rendered: no end after {SECONDS} s.") from None
    if done.returncode:
        said = "".join(f"\n    {escaped(line)}" for line in done.stderr.strip().splitlines()[-_TAIL:])
        error = NothingToCompare if done.returncode == WRONG_INPUT else CommandError
        code = f"exit code {done.returncode}"
        raise error(f"{escaped(revision)} cannot be rendered: its own `rollout render` ended with {code}:{said}")


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
