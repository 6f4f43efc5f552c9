"""Creates the manifest of an entry on disk: hashes every file, and refuses files that cannot be registered."""

import os
from pathlib import Path

from tidegate_contracts.manifest import ENTRY_VERSION, Manifest, ManifestFile, is_inside, make_manifest

from ..errors import UsageError
from ..hashing import below, hashed
from ..kinds import kind_of_entry
from ..names import RULE, is_name
from ..parallel import HASHING, Progress, in_parallel
from .version import CLIENT_SUFFIX

PATH_BYTES = 1024  # The limit of object stores, which includes the prefix of the entry.
STEP_BYTES = 255


def manifest_of(entry: Path, name: str | None = None, progress: Progress = lambda _bytes: None) -> Manifest:
    """Return the manifest of the entry in a directory. The default model name is the directory's.

    The version directory has the name ENTRY_VERSION in it. Empty directories are left out. Raises UsageError for a
    link, a device, an invalid or too long name, or a second version directory.
    """
    model = checked_name(name or entry.resolve().name)
    version = kind_of_entry(entry).version_folder(entry)
    try:
        files = in_parallel(lambda path: _hashed(entry, path, version, progress), _paths(entry), HASHING)
    except OSError as error:
        where, why = str(error.filename or entry), error.strerror or str(error)
        raise UsageError("cannot be read", where=where, why=why, do="grant read permission on it") from None
    return make_manifest(model, files)


def path_on_disk(entry: Path, version: str, path: str) -> Path:
    """Return the local file of a manifest's path, in an entry with this version directory."""
    step, slash, rest = path.partition("/")
    return entry / version / rest if slash and step == ENTRY_VERSION else entry / path


def checked_name(name: str) -> str:
    """Return a model's name that MLflow, Triton, file systems and object stores accept. Raises UsageError."""
    if not is_name(name):
        raise UsageError(f"{name!r} cannot be a model's name", do=RULE)
    if name.endswith(CLIENT_SUFFIX):
        why = f"names that end with {CLIENT_SUFFIX} are for client models"
        raise UsageError(f"{name!r} cannot be a model's name", why=why, do="choose another ending")
    return name


def _paths(entry: Path) -> list[str]:
    found = []
    for path, item in below(entry):
        _check(entry, path)
        if item.is_symlink():
            why = "its target may not exist where the model is served"
            do = "replace it with the file itself"
            raise UsageError("a symbolic link cannot be registered", where=item.path, why=why, do=do)
        if item.is_file():
            found.append(path)
        elif not item.is_dir():
            raise UsageError("neither a file nor a directory", where=item.path, do="remove it")
    return sorted(found)


def _check(entry: Path, path: str) -> None:
    encoded, why = os.fsencode(path), ""
    if len(encoded) > PATH_BYTES - 256 or len(encoded.rpartition(b"/")[2]) > STEP_BYTES:
        why = "it is too long for file systems or object stores"
    elif encoded != path.encode(errors="replace"):
        why = "it is not valid UTF-8"
    elif not is_inside(path):
        why = "it contains a backslash or a control character"
    elif any(sign in path for sign in "#%?"):
        why = "MLflow stores no file whose name contains #, % or ?"
    if why:
        raise UsageError(f"the name {path!r} cannot be registered", where=entry, why=why, do="rename it")


def _hashed(entry: Path, path: str, version: str, progress: Progress) -> ManifestFile:
    size, sha256 = hashed(entry / path, progress)
    step, slash, rest = path.partition("/")
    inside = path if version == "." else rest if slash and step == version else ""
    named = f"{ENTRY_VERSION}/{inside}" if inside else path
    executable = True if os.stat(entry / path).st_mode & 0o100 else None
    return ManifestFile(path=named, size=size, sha256=sha256, executable=executable)
