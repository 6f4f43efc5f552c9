"""Transfers entries to and from the artifact store: several files at a time, verified, and resumable by file."""

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

PAUSE_SECONDS = 0.5  # After the first try. It doubles after the second.
PARTIAL = ".tidegate-partial"  # Directory of incomplete files, below the target. They are downloaded again.
TRIES = 3  # Tries of an interrupted download. MLflow itself retries failed requests.


def upload(
    artifacts: Artifacts, folder: str, manifest: Manifest, on_disk: Callable[[str], Path], progress: Progress
) -> None:
    """Upload the files of a manifest to a directory of the artifact store, except those that are there already. Raises
    IntegrityError if a local file no longer matches the manifest."""
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
                raise IntegrityError(what, where=local, do="stop all writers of the entry, and register it again")
        progress(file.size)

    in_parallel(send, manifest.files)


def download(
    artifacts: Artifacts, folder: str, files: Sequence[ManifestFile], target: Path, progress: Progress
) -> None:
    """Download files of a manifest from the artifact store to a local directory, and verify each.

    Complete local files stay. Incomplete ones are in PARTIAL. Raises IntegrityError for a missing or different file,
    and UnfinishedError if a file cannot be written.
    """
    partial = target / PARTIAL

    def get(file: ManifestFile) -> None:
        path = target / file.path
        half = partial / token_hex(16)  # a random name, at which no one can have placed a link
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
        elif partial.exists():  # incomplete files of a killed run, which are not reused and may be large
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        for below in (target / each for each in sorted(_folders(files))):
            below.mkdir(exist_ok=True)
            if below.is_symlink():
                raise IntegrityError("a symbolic link is not allowed here", where=below, do="remove it")
    except OSError as error:
        raise _not_written(partial, error) from None
    try:
        in_parallel(get, files)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def read_verified(artifacts: Artifacts, path: str, sha256: str, limit: int) -> bytes:
    """Return a small file with this digest. Raises IntegrityError if it differs, is missing or is too large."""
    if path not in artifacts.list(path.rpartition("/")[0])[0]:
        raise _missing(path, artifacts)
    try:
        content = artifacts.read(path, limit)
    except NotFoundError as error:
        raise _missing(path, artifacts, error.why) from None
    if len(content) > limit:
        raise IntegrityError(f"{path} is larger than {limit} bytes", where=artifacts.where)
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        why = f"its SHA-256 is {found}, but {sha256} was registered"
        do = "do not deploy this version. Register the entry again, and find out who can write to the artifact store"
        raise IntegrityError(f"{path} differs from what was registered", where=artifacts.where, why=why, do=do)
    return content


def check_listing(artifacts: Artifacts, folder: str, manifest: Manifest) -> None:
    """Raise IntegrityError for files in the artifact store that are missing, too large or not in the manifest."""
    there = _sizes(artifacts, folder, manifest)
    known = {file.path: file.size for file in manifest.files}
    strays = sorted(there.keys() - known.keys())
    if strays:
        more = f" and {len(strays) - 5} more" if len(strays) > 5 else ""
        what = "the version has files that are not in its manifest"
        do = "find out who can write to the artifact store. Remove the files, or register the entry again"
        raise IntegrityError(what, where=artifacts.where, why=", ".join(map(repr, strays[:5])) + more, do=do)
    for path, size in there.items():
        if size > known[path]:
            raise _too_large(path, known[path], artifacts)
    if missing := sorted(known.keys() - there.keys()):
        raise _missing(f"{folder}/{missing[0]}", artifacts)


def _sizes(artifacts: Artifacts, folder: str, manifest: Manifest) -> dict[str, int]:
    """Return the files below a directory with their sizes, by relative path. Only directories of the manifest are
    listed. Others are returned themselves, with a slash at the end."""
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
    why = f"its SHA-256 is {sha256}, but the manifest has {file.sha256}"
    if size < file.size:
        why = f"it ends after {size} of {file.size} bytes"
    do = "try again. If it still fails, register the entry again, and find out who can write to the artifact store"
    raise IntegrityError(f"{file.path} differs from what was registered", where=artifacts.where, why=why, do=do)


def _too_large(path: str, size: int, artifacts: Artifacts) -> IntegrityError:
    why = f"the manifest has {size} bytes, but the store has more"
    do = "register the entry again, and find out who can write to the artifact store"
    return IntegrityError(f"{path} is larger than what was registered", where=artifacts.where, why=why, do=do)


def _missing(path: str, artifacts: Artifacts, why: str = "it is not in its directory") -> IntegrityError:
    what = f"{path} is missing in the artifact store"
    do = "register the entry again, and find out who can delete from the artifact store"
    return IntegrityError(what, where=artifacts.where, why=why, do=do)


def _not_written(path: Path, error: OSError) -> UnfinishedError:
    remedy = {
        errno.ENOSPC: "free space",
        errno.EDQUOT: "free space, or have the quota raised",
        errno.ESTALE: "check that the network share is mounted",
    }.get(error.errno or 0, "check the permissions")
    do = f"{remedy}, then run the same command again. Complete files stay"
    return UnfinishedError("the file cannot be written", where=path, why=error.strerror or str(error), do=do)
