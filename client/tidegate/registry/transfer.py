"""Whole entries to and from the artifact store: in parallel, each byte counted and hashed, resumed after a kill."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tidegate_contracts.manifest import Manifest, ManifestFile, is_inside

from ..errors import IntegrityError, NotFoundError, TidegateError, UnfinishedError, UnreachableError
from ..hashing import chunks_of, remember_written, sha256_of
from .artifacts import Artifacts
from .parallel import TRANSFERS, Progress, Stop, go_on, in_parallel, one_at_a_time
from .sending import Sending

PAUSE_SECONDS = 0.5
"""After the first try; twice as long after the second."""
PARTIAL = ".tidegate-partial"
"""Folder, below the one that is fetched into, of files that are not whole yet: those begin anew."""
TRIES = 3
"""A download that breaks in its middle begins anew so often; MLflow tries whole requests again by itself."""


def upload(
    artifacts: Artifacts,
    folder: str,
    manifest: Manifest,
    on_disk: Callable[[str], Path],
    progress: Progress | None,
) -> None:
    """Bring the files of a manifest into a folder of the artifact store.

    What is there already with the right size is read back, and sent again only when its digest is another one. Raises
    IntegrityError when a file is not what the manifest says any more.
    """
    there = _sizes(artifacts, folder, manifest)
    progress = one_at_a_time(progress)

    def send(file: ManifestFile, stop: Stop) -> None:
        path = f"{folder}/{file.path}"
        if there.get(file.path) == file.size and _is_right(artifacts, path, file, stop):
            if progress is not None:
                progress(file.size)
            return
        local = on_disk(file.path)
        try:
            with Sending.file(local, progress, stop) as content:
                if content.size == file.size:
                    artifacts.write(path, content)
                same = content.size == file.size and (not file.size or content.sha256 == file.sha256)
        except OSError:
            same = False
        if not same:
            raise IntegrityError(
                "the file changed while it was being registered",
                where=str(local),
                do="let nobody write the entry, and register it again",
            )

    in_parallel(send, manifest.files, TRANSFERS)


def download(
    artifacts: Artifacts, folder: str, files: Sequence[ManifestFile], target: Path, progress: Progress | None
) -> None:
    """Bring files of a manifest from a folder of the artifact store into a folder on disk, each verified.

    Files that are whole there already stay; half ones lie in `<target>/.tidegate-partial` until they are. Raises
    IntegrityError for a file that is missing, truncated, too long or another one, and UnfinishedError when the disk
    does not take it.
    """
    partial = target / PARTIAL
    progress = one_at_a_time(progress)

    def get(file: ManifestFile, stop: Stop) -> None:
        path = f"{target}/{file.path}"
        half = f"{partial}/{hashlib.sha256(file.path.encode()).hexdigest()}"
        try:
            if _on_disk(path, file, stop):
                if progress is not None:
                    progress(file.size)
                return
            # Nobody's link is followed: there is nothing yet under this name.
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                _receive(artifacts, f"{folder}/{file.path}", file, descriptor, progress, stop)
                os.replace(half, path)
                status = os.fstat(descriptor)
            finally:
                os.close(descriptor)
            remember_written(status, file.sha256)
        except OSError as error:
            raise _not_written(path, error) from None

    try:
        _remove(partial)
        partial.mkdir(parents=True)
        _make_folders(target, files)
    except OSError as error:
        raise _not_written(partial, error) from None
    try:
        in_parallel(get, files, TRANSFERS)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove(partial: Path) -> None:
    """Delete what a killed run has left half; it may be large, and nothing of it is used."""
    if partial.is_symlink():
        partial.unlink()
    elif partial.exists():
        shutil.rmtree(partial)


def read_verified(artifacts: Artifacts, path: str, sha256: str, limit: int) -> bytes:
    """Return a small file that must have a digest; IntegrityError when it has another, is missing or too large."""
    try:
        with artifacts.read(path) as chunks:
            content = bytearray()
            for chunk in chunks:
                content += chunk
                if len(content) > limit:
                    raise IntegrityError(f"{path} is larger than {limit} bytes", where=artifacts.where)
    except NotFoundError as error:
        raise _missing(path, artifacts, error) from None
    if (found := hashlib.sha256(content).hexdigest()) != sha256:
        raise IntegrityError(
            f"{path} is not what was registered",
            where=artifacts.where,
            why=f"its SHA-256 is {found}, and {sha256} was registered",
            do="deploy nothing of this version; register the entry anew, and find out who can write the artifact store",
        )
    return bytes(content)


def check_listing(artifacts: Artifacts, folder: str, manifest: Manifest) -> None:
    """Raise IntegrityError for files in the artifact store that the manifest does not name.

    What a listing leaves out is no matter: files are asked for by the manifest's names.
    """
    strays = sorted(set(_sizes(artifacts, folder, manifest)) - {file.path for file in manifest.files})
    if strays:
        more = f" and {len(strays) - 5} more" if len(strays) > 5 else ""
        raise IntegrityError(
            "the version has files that its manifest does not name",
            where=artifacts.where,
            why=", ".join(map(repr, strays[:5])) + more,
            do="find out who can write the artifact store; take them away, or register the entry anew",
        )


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
    """Return every folder that these files lie in, and those that these lie in, by their paths."""
    return {file.path[:index] for file in files for index, sign in enumerate(file.path) if sign == "/"}


def _is_right(artifacts: Artifacts, path: str, file: ManifestFile, stop: Stop) -> bool:
    """Tell whether what is in the store is the file."""
    try:
        with artifacts.read(path) as chunks:
            return sha256_of(_not_much_more(chunks, file.size), lambda _: go_on(stop)) == file.sha256
    except (NotFoundError, UnreachableError):
        return False


def _not_much_more(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the chunks up to the one that is too much."""
    for chunk in chunks:
        yield chunk
        size -= len(chunk)
        if size < 0:
            return


def _on_disk(path: str, file: ManifestFile, stop: Stop) -> bool:
    """Tell whether what is on disk is the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link: it is replaced, not followed
            return False
        raise
    try:
        if os.fstat(descriptor).st_size != file.size:
            return False
        return sha256_of(chunks_of(descriptor), lambda _: go_on(stop)) == file.sha256
    finally:
        os.close(descriptor)


def _receive(
    artifacts: Artifacts, remote: str, file: ManifestFile, descriptor: int, progress: Progress | None, stop: Stop
) -> None:
    """Download a file into an empty one; it is whole and right."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if progress is not None and done > told:
            progress(done - told)  # what comes a second time counts once
            told = done

    for tries_left in reversed(range(TRIES)):
        try:
            done, sha256 = _received_once(artifacts, remote, file, descriptor, tell, stop)
        except NotFoundError as error:
            raise _missing(remote, artifacts, error) from None
        except UnreachableError:
            if not tries_left:
                raise
            stop.wait(PAUSE_SECONDS * (TRIES - tries_left))
        else:
            if done == file.size or not tries_left:
                break
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.ftruncate(descriptor, 0)
    if done < file.size:
        why = f"it ends after {done} of {file.size} bytes"
    elif sha256 != file.sha256:
        why = f"its SHA-256 is {sha256}, and the manifest says {file.sha256}"
    else:
        return
    raise IntegrityError(
        f"{file.path} is not what was registered",
        where=artifacts.where,
        why=why,
        do="try again; if it stays so, register the entry anew, and find out who can write the artifact store",
    )


def _received_once(
    artifacts: Artifacts, remote: str, file: ManifestFile, descriptor: int, tell: Progress, stop: Stop
) -> tuple[int, str]:
    """Return how many bytes came, and their digest."""
    done = 0

    def written(chunks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal done
        for chunk in chunks:
            go_on(stop)
            done += len(chunk)
            if done > file.size:
                raise IntegrityError(
                    f"{file.path} is larger than what was registered",
                    where=artifacts.where,
                    why=f"the manifest says {file.size} bytes, and more of it came",
                    do="register the entry anew, and find out who can write the artifact store",
                )
            _write(descriptor, chunk)
            tell(done)
            yield chunk

    with artifacts.read(remote) as chunks:
        sha256 = sha256_of(written(chunks))
    return done, sha256


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folders(target: Path, files: Sequence[ManifestFile]) -> None:
    """Make the folders of files below another one; a link is no folder."""
    for folder in (target / each for each in sorted(_folders(files))):
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise IntegrityError("this is a symbolic link", where=str(folder), do="take it away")


def _missing(path: str, artifacts: Artifacts, error: TidegateError) -> IntegrityError:
    return IntegrityError(
        f"{path} is not in the artifact store, and the version has it",
        where=artifacts.where,
        why=error.why,
        do="register the entry anew; find out who can delete from the artifact store",
    )


def _not_written(path: Path | str, error: OSError) -> UnfinishedError:
    remedy = {
        errno.ENOSPC: "make room",
        errno.EDQUOT: "make room, or have the quota raised",
        errno.ESTALE: "see that the network share is mounted",
    }.get(error.errno or 0, "see that it can be written")
    return UnfinishedError(
        "the file cannot be written",
        where=str(path),
        why=error.strerror or str(error),
        do=f"{remedy}, and run the same command again: what is whole stays",
    )
