"""Triton's model repository: sizes, configurations, and the content that a load would load. It is only read."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tidegate_contracts.eviction import DISK_FACTOR
from tritonclient.grpc import model_config_pb2

from ..server import ModelFiles, RepositoryError

CONFIG = "config.pbtxt"
MOST_CONFIG_BYTES = 16 << 20
PYTHON_CACHE = "__pycache__"  # What a load leaves itself in a folder that can be written: no content.
UNSEEN = ""  # In place of a configuration that lies where only Triton can read it.
LEAST_BYTES = 32 << 20  # What a model takes at least in an estimate: one process of the Python backend, with numpy.


@dataclass(frozen=True, slots=True)
class TritonModelFiles(ModelFiles):
    """A model in Triton's repository."""

    override: str | None = None
    """The configuration (JSON) that makes a load load just these versions; None where config.pbtxt does."""


class TritonRepository:
    """A folder of models, or object storage."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.is_remote = "://" in root

    def check(self) -> None:
        """Raise OSError when the folder itself is not there: its models are out of sight then, and not removed."""
        if not self.is_remote:
            os.scandir(self.root).close()

    def override(self, model: str, versions: tuple[int, ...]) -> str | None:
        """Return the configuration (JSON) with which a load loads these versions: None where it does so anyway, UNSEEN
        where only Triton can read it. Blocks while it reads; raises RepositoryError and OSError."""
        if self.is_remote:
            return UNSEEN if versions else None
        found = self.look(model, versions)
        if found is not None and found.problem:
            raise RepositoryError(found.problem)
        return None if found is None else found.override

    def look(self, model: str, wanted: Iterable[int] = ()) -> TritonModelFiles | None:
        """Return a model as it lies there now, as `server.ModelRepository.look` says."""
        folder = self._folder(model)
        if folder is None:
            return None
        config, strange = self.config(folder)
        wanted = tuple(sorted(wanted))
        there = _versions(folder)
        by_config = chosen(config, there)
        versions = tuple(each for each in there if each in wanted) if wanted else by_config
        override, problem = None, ""
        if wanted and versions != by_config:
            if strange:
                problem = (
                    f"{CONFIG} of {model} has fields that this policy does not know ({strange}), so it cannot choose "
                    f"versions {', '.join(map(str, wanted))}: say version_policy {{ specific {{ versions: [ … ] }} }} "
                    "in it"
                )
            else:
                override = with_versions(config, wanted)
        parts = tuple(sorted(self._parts(config, model)))
        # An ensemble is what its parts are: of a new one it is to be loaded anew.
        inside = []
        for part in parts:
            if (whole := self._folder(part)) is not None:
                inside.append(_content(whole, chosen(self.config(whole)[0], _versions(whole)), "")[1])
        size, stamp = _content(folder, versions, "\0".join([override or "", *inside]))
        estimate = 0 if parts else max(LEAST_BYTES, int(size * DISK_FACTOR))  # an ensemble holds nothing itself
        return TritonModelFiles(versions, stamp, parts, estimate, problem, override)

    def config(self, folder: Path) -> tuple[Any, str]:
        """Return a folder's configuration, empty without one, and what is not known of it; raises RepositoryError."""
        config = model_config_pb2.ModelConfig()
        try:
            text = _text(folder / CONFIG)
        except FileNotFoundError:
            return config, ""
        except (OSError, UnicodeDecodeError) as error:
            raise RepositoryError(f"{folder / CONFIG} cannot be read: {error}") from None
        try:
            return text_format.Parse(text, config), ""
        except text_format.ParseError as error:
            strange = str(error)
        config = model_config_pb2.ModelConfig()
        try:
            return text_format.Parse(text, config, allow_unknown_field=True), strange
        except (text_format.ParseError, RecursionError) as error:
            raise RepositoryError(f"{folder / CONFIG} is no model configuration: {error}") from None

    def _folder(self, model: str) -> Path | None:
        # A name is always one step below the root.
        if self.is_remote or model in ("", ".", "..") or "/" in model or "\0" in model:
            return None
        try:
            is_folder = stat.S_ISDIR(os.stat(os.path.join(self.root, model)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Path(self.root, model) if is_folder else None

    def _parts(self, config: Any, model: str) -> set[str]:
        found: set[str] = set()
        left = [config]
        while left:
            for step in left.pop().ensemble_scheduling.step:
                part = step.model_name
                if part == model or part in found or (folder := self._folder(part)) is None:
                    continue
                found.add(part)
                left.append(self.config(folder)[0])
        return found


def _text(path: Path) -> str:
    """Return a file's text; raises OSError, also for what is no file and could block, and UnicodeDecodeError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        data = file.read(MOST_CONFIG_BYTES + 1)
    if len(data) > MOST_CONFIG_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_CONFIG_BYTES} bytes")
    return data.decode("utf-8")


def chosen(config: Any, there: tuple[int, ...]) -> tuple[int, ...]:
    """Return which of the versions that are there a configuration's version policy has Triton load."""
    kind = config.version_policy.WhichOneof("policy_choice")
    if kind == "all":
        return there
    if kind == "specific":
        return tuple(each for each in there if each in config.version_policy.specific.versions)
    newest = config.version_policy.latest.num_versions if kind == "latest" else 1
    return there[-max(newest, 1) :]


def with_versions(config: Any, versions: Iterable[int]) -> str:
    """Return a configuration as JSON, with these versions and no others."""
    made = model_config_pb2.ModelConfig()
    made.CopyFrom(config)
    made.version_policy.specific.versions[:] = sorted(versions)
    text: str = json_format.MessageToJson(made, preserving_proto_field_name=True, indent=None)
    return text


def _versions(folder: Path) -> tuple[int, ...]:
    """Return the versions that are there, as Triton counts them: folders with a number that does not begin with 0."""
    names = (entry.name for entry in os.scandir(folder) if entry.is_dir())
    return tuple(sorted(int(name) for name in names if name.isdecimal() and name.isascii() and name[0] != "0"))


def _content(folder: Path, versions: tuple[int, ...], more: str) -> tuple[int, str]:
    """Return the bytes and the stamp of what a load loads: these versions, what belongs to all of them, and `more`."""
    seen = hashlib.sha256(more.encode())
    size = 0
    others = {str(each) for each in _versions(folder)} - {str(each) for each in versions}
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != PYTHON_CACHE)
        if where == str(folder):
            folders[:] = [name for name in folders if name not in others]
        for name in sorted(names):
            try:
                found = os.stat(os.path.join(where, name))
            except FileNotFoundError:  # a link to nothing, or it has just gone
                continue
            size += found.st_size
            path = os.path.relpath(os.path.join(where, name), folder)
            seen.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return size, seen.hexdigest()[:16]
