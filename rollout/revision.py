"""What a git revision's own code makes of a definition."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stacks.problems import escaped

from .errors import RolloutError
from .terminal import note

SECONDS = 600
_TAIL = 12


@contextmanager
def rendering_of(revision: str, definition: Path) -> Iterator[Path]:
    """Yield a temporary folder with the rendering of a revision, made by the code of that revision itself."""
    folder = definition.resolve().parent
    if not folder.is_dir():
        raise RolloutError(f"{escaped(str(folder))} is no folder.")
    top = Path(_git(folder, "rev-parse", "--show-toplevel", error=_no_repository(definition)))
    what = f"{escaped(revision)}^{{commit}}"
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", what, error=_unknown(revision))
    wanted = definition.resolve().relative_to(top.resolve())
    with TemporaryDirectory(prefix="tidegate-") as temporary:
        tree = Path(temporary) / "tree"
        _extract(top, commit, Path(temporary) / "tree.tar", tree)
        if not (tree / wanted).is_file():
            raise RolloutError(
                f"{escaped(revision)} has no {escaped(str(wanted))}, so there is nothing to compare with."
            )
        root = next((root for root in (tree / wanted).parents if (root / "rollout/__main__.py").is_file()), None)
        if root is None or not root.is_relative_to(tree):
            raise RolloutError(f"{escaped(revision)} cannot render itself: it has no `rollout` package yet.")
        note(f"rendering {escaped(revision)} ({commit[:10]}) with its own code …")
        _render(revision, root, (tree / wanted).relative_to(root), Path(temporary) / "rendered")
        yield Path(temporary) / "rendered"


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
        raise RolloutError(f"what git archived cannot be unpacked: {escaped(str(error))}") from None


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leave out links that lead out of the revision: what they lead to is no part of it."""
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _render(revision: str, root: Path, definition: Path, out: Path) -> None:
    command = [sys.executable, "-m", "rollout", "up", str(definition), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "contracts")])}
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RolloutError(f"{escaped(revision)} cannot be rendered: no end after {SECONDS} s.") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-_TAIL:]
        said = "\n".join(f"    {escaped(line)}" for line in lines)
        raise RolloutError(
            f"{escaped(revision)} cannot be rendered: its own `rollout up` ended with exit code "
            f"{done.returncode}:\n{said}"
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
        raise RolloutError("comparing with a revision needs git, and there is none on the PATH.") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RolloutError(error + (f"\n    {escaped(said[-1])}" if said else ""))
    return done.stdout.strip()


def _no_repository(definition: Path) -> str:
    return f"{escaped(str(definition))} lies in no git repository, so there is no revision to compare with:"


def _unknown(revision: str) -> str:
    return f"git knows no revision {escaped(revision)} here; `git branch --all` and `git log --oneline` list some."
