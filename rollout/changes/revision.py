"""What a git revision's own code makes of a definition."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stacks.command import FAILED, WRONG_INPUT, CommandError
from stacks.problems import escaped
from stacks.validate import read_definition

from ..render import render
from ..terminal import note

SECONDS = 600
_TAIL = 12


class NothingToCompare(CommandError):
    """A revision exists, but has nothing that could be rendered: against it, everything is new."""


@dataclass(frozen=True)
class Revision:
    """A revision's rendering: a folder for each stack."""

    commit: str
    folder: Path


@contextmanager
def rendering_of(revision: str, definition: Path) -> Iterator[Revision]:
    """Yield the rendering of a revision, made by its own code, in a folder that is there for the while.

    Raises NothingToCompare where the revision has no such definition, no code, or a definition that is wrong.
    """
    folder = definition.resolve().parent
    if not folder.is_dir():
        raise CommandError(f"{escaped(str(folder))} is no folder.")
    lost = f"{escaped(str(definition))} lies in no git repository, so there is no revision to compare with:"
    unknown = f"git knows no revision {escaped(revision)} here; `git branch --all` and `git log --oneline` list some."
    top = Path(_git(folder, "rev-parse", "--show-toplevel", error=lost))
    what = f"{escaped(revision)}^{{commit}}"
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", what, error=unknown)
    wanted = definition.resolve().relative_to(top.resolve())
    with TemporaryDirectory(prefix="tidegate-") as temporary:
        tree = Path(temporary) / "tree"
        _extract(top, commit, Path(temporary) / "tree.tar", tree)
        if not (tree / wanted).is_file():
            raise NothingToCompare(
                f"{escaped(revision)} has no {escaped(str(wanted))}, so there is nothing to compare with."
            )
        root = next((root for root in (tree / wanted).parents if (root / "rollout/__main__.py").is_file()), None)
        if root is None or not root.is_relative_to(tree):
            raise NothingToCompare(f"{escaped(revision)} cannot render itself: it has no `rollout` package yet.")
        note(f"rendering {escaped(revision)} ({commit[:10]}) with its own code …")
        _render(revision, root, (tree / wanted).relative_to(root), Path(temporary) / "rendered")
        yield Revision(commit, Path(temporary) / "rendered")


def _extract(top: Path, commit: str, archive: Path, tree: Path) -> None:
    _git(top, "archive", "--format=tar", f"--output={archive}", commit, error="git could not archive the revision")
    tree.mkdir()
    try:
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(tree, filter=_inside)
            else:  # the first releases of 3.11; the archive is git's own, so its paths stay inside
                tar.extractall(tree)
    except tarfile.TarError as error:
        raise CommandError(f"what git archived cannot be unpacked: {escaped(str(error))}") from None


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leave out links that lead out of the revision: what they lead to is no part of it."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def render_for_previews(definition: Path, out: Path) -> None:
    """Write what a definition renders to and hold it to no guardrail: later revisions are compared with it."""
    read = read_definition(definition)
    for stack in read.stacks:
        (out / stack.name).mkdir(parents=True)
        for name, text in render(stack, read.lock, read.file).files.items():
            (out / stack.name / name).write_bytes(text.encode())


def _render(revision: str, root: Path, definition: Path, out: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")])}
    # It may break guardrails that the change mends: no reason not to compare with it. Older code knows no `render`.
    failed = []
    for command in ("up", "render"):
        try:
            done = subprocess.run(
                [sys.executable, "-m", "rollout", command, str(definition), "--out", str(out)],
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"{escaped(revision)} cannot be rendered: no end after {SECONDS} s.") from None
        if not done.returncode:
            return
        failed.append(done)
        if done.returncode != FAILED:
            break
    first = failed[0]
    lines = first.stderr.decode("utf-8", "replace").strip().splitlines()[-_TAIL:]
    said = "\n".join(f"    {escaped(line)}" for line in lines)
    error = NothingToCompare if first.returncode == WRONG_INPUT else CommandError
    raise error(
        f"{escaped(revision)} cannot be rendered: its own `rollout up` ended with exit code {first.returncode}:\n{said}"
    )


def _git(folder: Path, *arguments: str, error: str) -> str:
    # A hook or an alias may have pointed git elsewhere; what counts is where the definition lies.
    environment = {key: value for key, value in os.environ.items() if key not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            errors="surrogateescape",  # as Python has it in paths
            check=False,
        )
    except FileNotFoundError:
        raise CommandError("comparing with a revision needs git, and there is none on the PATH.") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise CommandError(error + (f"\n    {escaped(said[-1])}" if said else ""))
    return done.stdout.strip()
