"""The entry of a version in its staging folder: proved right, and given the shape that it has in the repository.

While it is fetched it has the shape of the entry; published, all of it is in the version's folder. What turns one
into the other are renames only, so that whatever a killed run had fetched is found again.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate_contracts.manifest import ENTRY_VERSION, Manifest, ManifestFile

from ..errors import IntegrityError
from . import steps
from .config import ENTRY
from .repository import Progress

_THREADS = 8
"""More than there are processors: most of the time each waits for the disk."""
_MANY = 25
"""Files or folders from which on all are synced at once."""
_CHUNK = 1 << 20
_LIKE_A_NUMBER = re.compile(r"\s*[-+]?[0-9]")


def walk(folder: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and status of every file below a folder, in order; raises IntegrityError for links and the like.

    Nothing is followed, so nothing outside of the folder is ever looked at.
    """
    with os.scandir(folder) as scan:
        items = sorted(scan, key=lambda item: item.name)
    for item in items:
        path = f"{below}{item.name}"
        status = item.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            yield from walk(folder / item.name, f"{path}/")
        elif stat.S_ISREG(status.st_mode):
            yield path, status
        else:
            do = "delete it: in a repository there are files and folders only"
            raise IntegrityError(f"{path} is a link or a special file", where=str(folder), do=do)


def verify(staged: Path, manifest: Manifest, progress: Progress | None = None) -> None:
    """Have every file of an entry on the disk, and only then prove its content; raises IntegrityError."""
    _check_names(staged, manifest)
    there = {path: status.st_size for path, status in walk(staged)}
    expected = {file.path: file for file in manifest.files}
    problems = [f"{path} is missing" for path in expected.keys() - there.keys()]
    problems += [f"{path} is not in the manifest" for path in there.keys() - expected.keys()]
    problems += [
        f"{path} has {there[path]} bytes instead of {file.size}"
        for path, file in expected.items()
        if there.get(path, file.size) != file.size
    ]
    if not problems:
        synced = len(there) > _MANY and steps.sync_all(staged)
        with ThreadPoolExecutor(_THREADS) as threads:
            proved = threads.map(lambda file: _proved(staged / file.path, file, synced, progress), manifest.files)
            right = dict(zip(manifest.files, proved, strict=True))
        problems = [f"{file.path} has other content than was registered" for file in manifest.files if not right[file]]
    if problems:
        what = f"what was fetched of model {manifest.model} is not what was registered: {'; '.join(sorted(problems))}"
        do = f"delete {staged} and run the command again; should it come again, the registry's artifacts are damaged"
        raise IntegrityError(what, where=str(staged), do=do)


def _check_names(staged: Path, manifest: Manifest) -> None:
    for file in manifest.files:
        first, _, rest = file.path.partition("/")
        if rest.split("/")[0] == ENTRY and first == ENTRY_VERSION:
            raise IntegrityError(f"the entry has a folder {ENTRY} of its own: {file.path}", where=str(staged))
        if _LIKE_A_NUMBER.match(first) and not (first == ENTRY_VERSION and rest):
            why = "Triton takes every folder for a version whose name begins like a number, and some end it"
            do = f"register an entry with one version folder, {ENTRY_VERSION}"
            what = f"the entry has another version folder: {file.path}"
            raise IntegrityError(what, where=str(staged), why=why, do=do)


def _proved(path: Path, file: ManifestFile, synced: bool, progress: Progress | None) -> bool:
    """Tell whether a file has the content it should, once it is on the disk; all may read it, whatever the umask."""
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(descriptor, "rb", buffering=0) as opened:
        if not synced:
            os.fsync(descriptor)
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
            if progress:
                progress(len(chunk))
    steps.allow(path, 0o444)
    return digest.hexdigest() == file.sha256


def fold(staged: Path, newer_than: int) -> Path:
    """Give a proved entry the shape of a published version, and return the folder of that.

    Its times are after `newer_than` (nanoseconds): Triton takes no notice of what is older than what it has seen.
    """
    version = staged / ENTRY_VERSION
    steps.make_folder(version)
    for item in sorted(staged.iterdir()):
        if item.name != ENTRY_VERSION:
            steps.make_folder(version / ENTRY)
            steps.rename(item, version / ENTRY / item.name)
    folders = [Path(folder) for folder, _, _ in os.walk(version, topdown=False)]
    for folder in folders:
        steps.allow(folder, 0o755)
    if len(folders) <= _MANY or not steps.sync_all(version):
        for folder in folders:
            steps.sync(folder)
    be_newer(version, newer_than)
    return version


def unfold(staged: Path) -> None:
    """Take back what `fold` did, as far as it came."""
    folder = staged / ENTRY_VERSION / ENTRY
    if folder.is_dir():
        for item in sorted(folder.iterdir()):
            steps.rename(item, staged / item.name)
        folder.rmdir()


def be_newer(path: Path, than: int) -> None:
    """See that the time of a file or a folder is after another (nanoseconds), whatever this machine's clock says."""
    if path.stat().st_mtime_ns <= than:
        os.utime(path, ns=(than + 10**9, than + 10**9))
