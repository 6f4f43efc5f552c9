"""Whole entries to and from the artifact store: several files at a time, each verified, resumed file by file."""

import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from secrets import token_hex

from tidegate_contracts.manifest import Manifest, ManifestFile, is_inside

from ..errors import IntegrityError, NotFoundError, UnfinishedError, UnreachableError
from ..hashing import hashed
from ..parallel import Progress, in_parallel
from .artifacts import Artifacts

PAUSE_SECONDS = 0.5  # After the first try; twice as long after the second.
PARTIAL = ".tidegate-partial"  # Folder, below the one fetched into, of files that are not whole yet: those begin anew.
TRIES = 3  # A download that breaks in its middle begins anew so often; MLflow tries whole requests again by itself.


def upload(
    artifacts: Artifacts, folder: str, manifest: Manifest, on_disk: Callable[[str], Path], progress: Progress
) -> None:
    """Bring the files of a manifest into a folder of the artifact store, but for those that are there already.

    Raises IntegrityError when a file is not what the manifest says any more.
    """
    there = _sizes(artifacts, folder, manifest)

    def send(file: ManifestFile) -> None:
        path, local = f"{folder}/{file.path}", on_disk(file.path)
        if there.get(file.path) != file.size or not _is_stored(artifacts, path, file):
            try:
                artifacts.upload(local, path)
                changed = not _is_on_disk(local, file)
            except OSError:
                changed = True
            if changed:
                what = "the file changed while it was being registered"
                raise IntegrityError(what, where=local, do="let nobody write the entry, and register it again")
        progress(file.size)

    in_parallel(send, manifest.files)


def download(
    artifacts: Artifacts,
    folder: str,
    files: Sequence[ManifestFile],
    target: Path,
    progress: Progress,
) -> None:
    """Bring files of a manifest from a folder of the artifact store into a folder on disk, each verified.

    What is whole there stays; what is half lies in PARTIAL. Raises IntegrityError for a file that is missing or another
    one, and UnfinishedError when the disk does not take it.
    """
    partial = target / PARTIAL

    def get(file: ManifestFile) -> None:
        path = target / file.path
        half = partial / token_hex(16)  # nobody can have laid a link there
        try:
            if not _is_on_disk(path, file):
                _receive(artifacts, f"{folder}/{file.path}", file, half)
                if file.executable:
                    half.chmod(0o755)
                os.replace(half, path)
        except OSError as error:
            raise _not_written(path, error) from None
        progress(file.size)

    try:
        if partial.is_symlink():
            partial.unlink()
        elif partial.exists():  # what a killed run has left half may be large, and nothing of it is used
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        for below in (target / each for each in sorted(_folders(files))):
            below.mkdir(exist_ok=True)
            if below.is_symlink():
                raise IntegrityError("this is a symbolic link", where=below, do="take it away")
    except OSError as error:
        raise _not_written(partial, error) from None
    try:
        in_parallel(get, files)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_verified(artifacts: Artifacts, path: str, sha256: str, limit: int) -> bytes:
    """Return a small file that must have a digest; IntegrityError when it has another, is missing or too large."""
    if path not in artifacts.list(path.rpartition("/")[0])[0]:
        raise _missing(path, artifacts)
    try:
        content = artifacts.read(path, limit)
    except NotFoundError as error:
        raise _missing(path, artifacts, error.why) from None
    if len(content) > limit:
        raise IntegrityError(f"{path} is larger than {limit} bytes", where=artifacts.where)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        why = f"its SHA-256 is {found}, and {sha256} was registered"
        do = "deploy nothing of this version; register the entry anew, and find out who can write the artifact store"
        raise IntegrityError(f"{path} is not what was registered", where=artifacts.where, why=why, do=do)
    return content


def check_listing(artifacts: Artifacts, folder: str, manifest: Manifest) -> None:
    """Raise IntegrityError for files in the artifact store that are missing or larger, or that no manifest names."""
    there = _sizes(artifacts, folder, manifest)
    known = {file.path: file.size for file in manifest.files}
    strays = sorted(there.keys() - known.keys())
    if strays:
        more = f" and {len(strays) - 5} more" if len(strays) > 5 else ""
        what = "the version has files that its manifest does not name"
        do = "find out who can write the artifact store; take them away, or register the entry anew"
        raise IntegrityError(what, where=artifacts.where, why=", ".join(map(repr, strays[:5])) + more, do=do)
    for path, size in there.items():
        if size > known[path]:
            raise _too_large(path, known[path], artifacts)
    if missing := sorted(known.keys() - there.keys()):
        raise _missing(f"{folder}/{missing[0]}", artifacts)


def _sizes(artifacts: Artifacts, folder: str, manifest: Manifest) -> dict[str, int]:
    """Return the files below a folder with their sizes, by their paths in it.

    Only folders that the manifest has are looked into; another one stands for itself, with a slash at its end.
    """
    known = _folders(manifest.files)
    found: dict[str, int] = {}
    folders = [""]
    while folders:
        below = folders.pop()
        files, deeper = artifacts.list(f"{folder}/{below}" if below else folder)
        found |= {path.removeprefix(f"{folder}/"): size for path, size in files.items()}
        for path in (each.removeprefix(f"{folder}/") for each in deeper):
            if path in known and is_inside(path):
                folders.append(path)
            else:
                found[f"{path}/"] = 0
    return found


def _folders(files: Iterable[ManifestFile]) -> set[str]:
    return {file.path[:index] for file in files for index, sign in enumerate(file.path) if sign == "/"}


def _is_stored(artifacts: Artifacts, path: str, file: ManifestFile) -> bool:
    with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
        try:
            return artifacts.download(path, Path(scratch, "content")) == (file.size, file.sha256)
        except (NotFoundError, UnreachableError):
            return False


def _is_on_disk(path: Path, file: ManifestFile) -> bool:
    try:
        return path.lstat().st_size == file.size and hashed(path) == (file.size, file.sha256)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def _receive(artifacts: Artifacts, remote: str, file: ManifestFile, half: Path) -> None:
    for tries_left in reversed(range(TRIES)):
        try:
            size, sha256 = artifacts.download(remote, half)
        except NotFoundError as error:
            raise _missing(remote, artifacts, error.why) from None
        except UnreachableError:
            if not tries_left:
                raise
            time.sleep(PAUSE_SECONDS * (TRIES - tries_left))
        else:
            if (size, sha256) == (file.size, file.sha256):
                return
            if size >= file.size:
                break
    if size > file.size:
        raise _too_large(file.path, file.size, artifacts)
    why = f"its SHA-256 is {sha256}, and the manifest says {file.sha256}"
    if size < file.size:
        why = f"it ends after {size} of {file.size} bytes"
    do = "try again; if it stays so, register the entry anew, and find out who can write the artifact store"
    raise IntegrityError(f"{file.path} is not what was registered", where=artifacts.where, why=why, do=do)


def _too_large(path: str, size: int, artifacts: Artifacts) -> IntegrityError:
    why = f"the manifest says {size} bytes, and more of it is there"
    do = "register the entry anew, and find out who can write the artifact store"
    return IntegrityError(f"{path} is larger than what was registered", where=artifacts.where, why=why, do=do)


def _missing(path: str, artifacts: Artifacts, why: str = "it is not in its folder") -> IntegrityError:
    what = f"{path} is not in the artifact store, and the version has it"
    do = "register the entry anew; find out who can delete from the artifact store"
    return IntegrityError(what, where=artifacts.where, why=why, do=do)


def _not_written(path: Path, error: OSError) -> UnfinishedError:
    remedy = {
        errno.ENOSPC: "make room",
        errno.EDQUOT: "make room, or have the quota raised",
        errno.ESTALE: "see that the network share is mounted",
    }.get(error.errno or 0, "see that it can be written")
    do = f"{remedy}, and run the same command again: what is whole stays"
    return UnfinishedError("the file cannot be written", where=path, why=error.strerror or str(error), do=do)
