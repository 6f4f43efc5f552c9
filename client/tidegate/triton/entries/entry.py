"""A model repository entry as Triton reads it: `<name>/config.pbtxt` and `<name>/<version>/…`."""

import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tidegate_contracts.manifest import BESIDE
from tritonclient.grpc.model_config_pb2 import ModelConfig

from ...errors import UsageError
from ...findings import Finding, error, warning
from ...hashing import below
from ...repository import StoredFile
from .text import CONFIG, ConfigText, read_config

MAX_CONFIG_BYTES = 1 << 20
NO_VERSIONS = ("configs", "initial_state", "warmup")
_VERSION = re.compile(r"0|[1-9][0-9]*")
_MAX_VERSION = 2**63 - 1
_LIKE_A_VERSION = re.compile(r"\s*[+-]?[0-9]+")


@dataclass(frozen=True)
class Entry:
    """The contents of one model's directory."""

    folder: Path
    name: str
    text: ConfigText | None  # None without config.pbtxt
    files: tuple[StoredFile, ...]
    """Every file, sorted by path. Links and special files are among the problems instead."""
    folders: tuple[str, ...]
    problems: tuple[Finding, ...]

    @property
    def config(self) -> ModelConfig | None:
        """The configuration, or None if it is missing or cannot be parsed."""
        return self.text.config if self.text else None

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The versions that Triton recognises, ascending."""
        return tuple(sorted(int(name) for name in self.folders if is_version(name)))

    @property
    def is_published(self) -> bool:
        """Whether it is a published model with many versions, and not one entry."""
        return any(file.path.split("/")[1:2] == [BESIDE] for file in self.files)

    def files_of(self, version: int) -> set[str]:
        start = f"{version}/"
        return {file.path.removeprefix(start) for file in self.files if file.path.startswith(start)}

    def where(self, field: str = "") -> str:
        """Return the place of a field of the configuration, such as `input[0].dims`: `config.pbtxt:12`."""
        return f"{CONFIG}:{self.text.line(field)}" if self.text else CONFIG


def is_version(name: str) -> bool:
    """Return whether Triton treats a directory of this name as a version: a number without leading zeros."""
    return _VERSION.fullmatch(name) is not None and int(name) <= _MAX_VERSION


def is_mistaken_for_a_version(name: str) -> bool:
    """Return whether Triton parses a number at the start of a name (`1-old`, `-1`), and then hangs or crashes."""
    if is_version(name) or (len(name) > 1 and name.startswith("0")):
        return False
    return _LIKE_A_VERSION.match(name) is not None


def read_entry(folder: Path, name: str | None = None) -> Entry:
    """Read an entry. The default name is the directory's. Raises UsageError if there is no directory."""
    if not folder.is_dir():
        what = "a file, not the directory of a model" if folder.exists() else "the directory does not exist"
        raise UsageError(what, where=folder, do="name the directory with config.pbtxt and the version directory")
    problems: list[Finding] = []
    files: list[StoredFile] = []
    folders: list[str] = []
    for path, at in below(folder):
        if path.count("/") == 0 and at.is_dir():
            folders.append(path)
        if at.is_symlink():
            why = "only files can be registered: the link's target may not exist on another machine"
            problems.append(warning("a symbolic link", path, why, "replace it with the file itself"))
        elif at.is_file(follow_symlinks=False):
            files.append(StoredFile(path, at.stat(follow_symlinks=False).st_size))
        elif not at.is_dir(follow_symlinks=False):
            problems.append(warning("not a regular file", path, "it is a pipe, a socket or a device", "remove it"))
    text, own_problems = _config(folder)
    name = name or Path(os.path.abspath(folder)).name  # a link's own name, like Triton
    return Entry(folder, name, text, tuple(sorted(files)), tuple(sorted(folders)), (*own_problems, *problems))


def entries_in(folder: Path) -> list[Path]:
    """Return the directory itself if it is an entry, else the entries in it. A model repository is not an entry."""
    if is_entry(folder):
        return [folder]
    return sorted(at for at in folder.iterdir() if at.is_dir() and is_entry(at))


def is_entry(folder: Path) -> bool:
    """Return whether a directory seems to be an entry: it has a configuration, or a version directory."""
    return (folder / CONFIG).exists() or any(is_version(at.name) and at.is_dir() for at in folder.iterdir())


def _config(folder: Path) -> tuple[ConfigText | None, tuple[Finding, ...]]:
    file = folder / CONFIG
    try:
        kind = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, ()
    if not stat.S_ISREG(kind.st_mode):
        what, why = "not a regular file", "Triton reads the configuration from it"
        return None, (error(what, CONFIG, why, "replace it with a text file"),)
    if kind.st_size > MAX_CONFIG_BYTES:
        what = f"it has {kind.st_size} bytes, but a configuration has a few thousand"
        do = "write the configuration there, and move the model to its version directory"
        return None, (error(what, CONFIG, do=do),)
    content = file.read_bytes()
    try:
        read = read_config(content.decode())
        return read, read.problems
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
    read = read_config(content.decode(errors="replace"))
    in_a_value = read.config is None or "\ufffd" in str(read.config)
    severity = error if in_a_value else warning
    return read, (*read.problems, severity("not valid UTF-8", f"{CONFIG}:{line}", do="save it in UTF-8"))
