"""A model repository entry: a folder as Triton reads it, `<name>/config.pbtxt` and `<name>/<version>/…`."""

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
    """What lies in the folder of one model."""

    folder: Path
    name: str
    text: ConfigText | None  # None where there is no config.pbtxt.
    files: tuple[StoredFile, ...]
    """Every file, in the order of their paths; links and special files are not among them, but among the problems."""
    folders: tuple[str, ...]
    problems: tuple[Finding, ...]

    @property
    def config(self) -> ModelConfig | None:
        """The configuration; None where there is none, or it cannot be parsed."""
        return self.text.config if self.text else None

    @cached_property
    def versions(self) -> tuple[int, ...]:
        """The versions that Triton sees, ascending."""
        return tuple(sorted(int(name) for name in self.folders if is_version(name)))

    @property
    def is_published(self) -> bool:
        """Whether it is not one entry, but a published model: many versions, as `publishing` laid them out."""
        return any(file.path.split("/")[1:2] == [BESIDE] for file in self.files)

    def files_of(self, version: int) -> set[str]:
        """Return the paths of a version's files, below its folder."""
        start = f"{version}/"
        return {file.path.removeprefix(start) for file in self.files if file.path.startswith(start)}

    def where(self, field: str = "") -> str:
        """Return the place of a field of the configuration, such as `input[0].dims`: `config.pbtxt:12`."""
        return f"{CONFIG}:{self.text.line(field)}" if self.text else CONFIG


def is_version(name: str) -> bool:
    """Tell whether Triton takes a folder of this name for a version: a number without zeros in front."""
    return _VERSION.fullmatch(name) is not None and int(name) <= _MAX_VERSION


def is_mistaken_for_a_version(name: str) -> bool:
    """Tell whether Triton reads a number at the beginning of a name, `1-old` or `-1`: it then hangs or ends."""
    if is_version(name) or (len(name) > 1 and name.startswith("0")):
        return False
    return _LIKE_A_VERSION.match(name) is not None


def read_entry(folder: Path, name: str | None = None) -> Entry:
    """Read an entry, named as its folder unless another name is said; raises UsageError where there is no folder."""
    if not folder.is_dir():
        what = "is a file, not the folder of a model" if folder.exists() else "there is no such folder"
        raise UsageError(what, where=folder, do="name the folder that holds config.pbtxt and the version's folder")
    problems: list[Finding] = []
    files: list[StoredFile] = []
    folders: list[str] = []
    for path, at in below(folder):
        if path.count("/") == 0 and at.is_dir():
            folders.append(path)
        if at.is_symlink():
            why = "a registered model holds files only: what a link names on this machine is not there on another"
            problems.append(warning("is a symbolic link", path, why, "put the file itself here"))
        elif at.is_file(follow_symlinks=False):
            files.append(StoredFile(path, at.stat(follow_symlinks=False).st_size))
        elif not at.is_dir(follow_symlinks=False):
            problems.append(warning("is no file", path, "it is a pipe, a socket or a device", "take it out"))
    text, own_problems = _config(folder)
    name = name or Path(os.path.abspath(folder)).name  # a link's own name, which is what Triton goes by
    return Entry(folder, name, text, tuple(sorted(files)), tuple(sorted(folders)), (*own_problems, *problems))


def entries_in(folder: Path) -> list[Path]:
    """Return the folder itself where it is an entry, else those in it that are: a model repository is none itself."""
    if is_entry(folder):
        return [folder]
    return sorted(at for at in folder.iterdir() if at.is_dir() and is_entry(at))


def is_entry(folder: Path) -> bool:
    """Tell whether a folder seems to be an entry: it has a configuration, or a version's folder."""
    return (folder / CONFIG).exists() or any(is_version(at.name) and at.is_dir() for at in folder.iterdir())


def _config(folder: Path) -> tuple[ConfigText | None, tuple[Finding, ...]]:
    file = folder / CONFIG
    try:
        kind = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None, ()
    if not stat.S_ISREG(kind.st_mode):
        return None, (error("is no file", CONFIG, "Triton reads the configuration from it", "make it a text file"),)
    if kind.st_size > MAX_CONFIG_BYTES:
        what = f"has {kind.st_size} bytes, and a configuration has a few thousand"
        return None, (error(what, CONFIG, do="put the configuration there, and the model into its version's folder"),)
    content = file.read_bytes()
    try:
        read = read_config(content.decode())
        return read, read.problems
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
    read = read_config(content.decode(errors="replace"))
    in_a_value = read.config is None or "\ufffd" in str(read.config)
    say = error if in_a_value else warning
    return read, (*read.problems, say("is not in UTF-8", f"{CONFIG}:{line}", do="save it in UTF-8"))
