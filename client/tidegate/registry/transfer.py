"""Whole entries to and from the artifact store: in parallel, each byte counted and hashed, resumed after a kill."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate_contracts.manifest import Manifest, ManifestFile, is_inside

from ..errors import IntegrityError, NotFoundError, TidegateError, UnfinishedError, UnreachableError
from .artifacts import CHUNK_BYTES, Artifacts
from .parallel import TRANSFERS, Progress, Stop, go_on, in_parallel, one_at_a_time
from .sending import Sending

PAUSE_SECONDS = 0.5
"""After the first try; twice as long after the second."""
PARTIAL = ".tidegate-partial"
"""Folder, below the one that is fetched into, of files that are not whole yet."""
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
        path = target / file.path
        try:
            if _on_disk(path, file, stop):
                if progress is not None:
                    progress(file.size)
                return
            half = partial / hashlib.sha256(file.path.encode()).hexdigest()
            _received(artifacts, f"{folder}/{file.path}", file, half, progress, stop)
            _make_folders(target, path.parent)
            half.replace(path)
        except OSError as error:
            raise _not_written(path, error) from None

    try:
        if partial.is_symlink():
            partial.unlink()
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_written(partial, error) from None
    in_parallel(get, files, TRANSFERS)
    shutil.rmtree(partial, ignore_errors=True)


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
    known = {file.path[:index] for file in manifest.files for index, sign in enumerate(file.path) if sign == "/"}
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


def _is_right(artifacts: Artifacts, path: str, file: ManifestFile, stop: Stop) -> bool:
    """Tell whether what is in the store is the file."""
    digest, left = hashlib.sha256(), file.size
    try:
        with artifacts.read(path) as chunks:
            for chunk in chunks:
                go_on(stop)
                digest.update(chunk)
                left -= len(chunk)
                if left < 0:
                    return False
    except (NotFoundError, UnreachableError):
        return False
    return left == 0 and digest.hexdigest() == file.sha256


def _on_disk(path: Path, file: ManifestFile, stop: Stop) -> bool:
    """Tell whether what is on disk is the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link: it is replaced, not followed
            return False
        raise
    digest = hashlib.sha256()
    with open(descriptor, "rb", buffering=0) as stream:
        if os.fstat(descriptor).st_size != file.size:
            return False
        while chunk := stream.read(CHUNK_BYTES):
            go_on(stop)
            digest.update(chunk)
    return digest.hexdigest() == file.sha256


def _received(
    artifacts: Artifacts, remote: str, file: ManifestFile, half: Path, progress: Progress | None, stop: Stop
) -> None:
    """Download a file to where half files lie; it is whole and right."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if progress is not None and done > told:
            progress(done - told)  # what comes a second time counts once
            told = done

    for tries_left in reversed(range(TRIES)):
        try:
            done, sha256 = _received_once(artifacts, remote, file, half, tell, stop)
        except NotFoundError as error:
            raise _missing(remote, artifacts, error) from None
        except UnreachableError:
            if not tries_left:
                raise
            stop.wait(PAUSE_SECONDS * (TRIES - tries_left))
            continue
        if done == file.size or not tries_left:
            break
    if done < file.size:
        why = f"it ends after {done} of {file.size} bytes"
    elif sha256 != file.sha256:
        why = f"its SHA-256 is {sha256}, and the manifest says {file.sha256}"
    else:
        return
    half.unlink(missing_ok=True)
    raise IntegrityError(
        f"{file.path} is not what was registered",
        where=artifacts.where,
        why=why,
        do="try again; if it stays so, register the entry anew, and find out who can write the artifact store",
    )


def _received_once(
    artifacts: Artifacts, remote: str, file: ManifestFile, half: Path, tell: Progress, stop: Stop
) -> tuple[int, str]:
    digest, done = hashlib.sha256(), 0
    half.unlink(missing_ok=True)  # with no link followed, which somebody else may have laid in a shared volume
    with artifacts.read(remote) as chunks, open(half, "xb", buffering=0) as stream:
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
            digest.update(chunk)
            _write(stream.fileno(), chunk)
            tell(done)
    return done, digest.hexdigest()


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


def _make_folders(root: Path, folder: Path) -> None:
    """Make a folder below another one; a link on the way is no folder."""
    for step in reversed([folder, *folder.parents]):
        if root in step.parents:
            step.mkdir(exist_ok=True)
            if step.is_symlink():
                raise IntegrityError("this is a symbolic link", where=str(step), do="take it away")


def _missing(path: str, artifacts: Artifacts, error: TidegateError) -> IntegrityError:
    return IntegrityError(
        f"{path} is not in the artifact store, and the version has it",
        where=artifacts.where,
        why=error.why,
        do="register the entry anew; find out who can delete from the artifact store",
    )


def _not_written(path: Path, error: OSError) -> UnfinishedError:
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
