"""The entry of a version in its staging folder: proved right, and given the shape that it has in the repository.

While it is fetched it has the shape of the entry; published, all of it is in the version's folder. What turns one
into the other are renames only, so that whatever a killed run had fetched is found again.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tidegate_contracts.manifest import BESIDE, ENTRY_VERSION, PUBLISHED_MANIFEST, Manifest, ManifestFile

from ..errors import IntegrityError
from ..hashing import below, hashed, written
from ..parallel import Progress, in_parallel
from . import steps

_MANY = 25  # Files or folders from which on all are synced at once.
_LIKE_A_NUMBER = re.compile(r"\s*[-+]?[0-9]")


def walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of every file below a folder, in order, following nothing; IntegrityError for links."""
    for path, item in below(folder):
        if item.is_file(follow_symlinks=False):
            yield path, item.stat(follow_symlinks=False)
        elif not item.is_dir(follow_symlinks=False):
            do = "delete it: in a repository there are files and folders only"
            raise IntegrityError(f"{path} is a link or a special file", where=folder, do=do)


def wrong_sizes(there: Mapping[str, int], expected: Mapping[str, ManifestFile]) -> list[str]:
    """Return which files are missing, of another size, or in no manifest, by their paths; a sentence each, sorted."""
    found = [f"{path} is not there" for path in expected.keys() - there.keys()]
    found += [f"{path} is in no manifest" for path in there.keys() - expected.keys()]
    for path in there.keys() & expected.keys():
        if there[path] != expected[path].size:
            found.append(f"{path} has {there[path]} bytes instead of {expected[path].size}")
    return sorted(found)


def verify(staged: Path, manifest: Manifest, progress: Progress | None = None) -> None:
    """Have every file of an entry on the disk, and only then prove its content; raises IntegrityError.

    What this process hashed while it wrote it, and nobody has touched since, is not read a second time.
    """
    _check_names(staged, manifest)
    there = dict(walk(staged))
    expected = {file.path: file for file in manifest.files}
    problems = wrong_sizes({path: status.st_size for path, status in there.items()}, expected)
    if not problems:
        problems = sorted(_wrong(staged, there, manifest.files, progress))
    if problems:
        what = f"what was fetched of model {manifest.model} is not what was registered: {'; '.join(problems)}"
        do = f"delete {staged} and run the command again; should it come again, the registry's artifacts are damaged"
        raise IntegrityError(what, where=staged, do=do)


def _check_names(staged: Path, manifest: Manifest) -> None:
    for file in manifest.files:
        first, _, rest = file.path.partition("/")
        if rest.split("/")[0] == BESIDE and first == ENTRY_VERSION:
            raise IntegrityError(f"the entry has a folder {BESIDE} of its own: {file.path}", where=staged)
        if _LIKE_A_NUMBER.match(first) and not (first == ENTRY_VERSION and rest):
            why = "Triton takes every folder for a version whose name begins like a number, and some end it"
            do = f"register an entry with one version folder, {ENTRY_VERSION}"
            what = f"the entry has another version folder: {file.path}"
            raise IntegrityError(what, where=staged, why=why, do=do)


def _wrong(
    staged: Path, there: Mapping[str, os.stat_result], files: Sequence[ManifestFile], progress: Progress | None
) -> list[str]:
    """Have files on the disk, and then return what is wrong with their content; all may read them."""

    def wrong(file: ManifestFile) -> str | None:
        right = hashed(staged / file.path, progress)[1] == file.sha256
        return None if right else f"{file.path} has other content than was registered"

    if len(files) <= _MANY or not steps.sync_all(staged):
        in_parallel(lambda file: steps.sync(staged / file.path), files)
    unread = []
    for file in files:
        if written(there[file.path]) != file.sha256:
            unread.append(file)
        elif progress:
            progress(file.size)
    found = list(filter(None, in_parallel(wrong, unread)))
    for file in files:
        steps.allow(staged / file.path, 0o555 if file.executable else 0o444, there[file.path])
    return found


def fold(staged: Path, manifest: Manifest, newer_than: int) -> Path:
    """Give a proved entry the shape of a published version, with its manifest, and return the folder of that.

    Its times are after `newer_than` (nanoseconds): Triton takes no notice of what is older than what it has seen.
    """
    version = staged / ENTRY_VERSION
    steps.make_folder(version)
    for item in sorted(staged.iterdir()):
        if item.name != ENTRY_VERSION:
            steps.make_folder(version / BESIDE)
            steps.rename(item, version / BESIDE / item.name)
    steps.write(version / PUBLISHED_MANIFEST, manifest.canonical())
    steps.allow(version / PUBLISHED_MANIFEST, 0o444)
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
    folder = staged / ENTRY_VERSION / BESIDE
    steps.refuse_links(staged.parent, folder)
    steps.remove(folder.with_name(PUBLISHED_MANIFEST))
    if folder.is_dir():
        for item in sorted(folder.iterdir()):
            steps.rename(item, staged / item.name)
        steps.remove(folder)


def be_newer(path: Path, than: int) -> None:
    """See that the time of a file or a folder is after another (nanoseconds), whatever this machine's clock says."""
    if path.stat().st_mtime_ns <= than:
        os.utime(path, ns=(than + 10**9, than + 10**9))
