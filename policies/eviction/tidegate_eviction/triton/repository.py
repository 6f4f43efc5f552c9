"""Triton's model repository: sizes, configurations, and the content of loads. It is only read."""

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, text_format
from pydantic import ValidationError
from tidegate_contracts.eviction import DISK_FACTOR
from tidegate_contracts.manifest import PUBLISHED_MANIFEST, Manifest, ManifestFile, published_path
from tidegate_contracts.triton import LEAST_MODEL_BYTES, code_backend
from tritonclient.grpc import model_config_pb2

from ..staging.sources import Contents, FolderSource, Listing, ModelSource, RepositoryError

if TYPE_CHECKING:
    from ..staging.objects import ObjectStore

CONFIG = "config.pbtxt"
MOST_CONFIG_BYTES = 1 << 20  # Parsing more takes a second or longer.
MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model in the repository."""

    versions: tuple[int, ...] = ()  # The existing versions that a load loads.
    stamp: str = ""  # Fingerprint of the content to load. It changes with the content, even to older files.
    parts: tuple[str, ...] = ()
    estimate_bytes: int | None = None  # Its estimated memory without its parts. None: unknown.
    problem: str = ""  # Why no load can succeed, if its files show that.
    override: str | None = None
    """The configuration (JSON) with which a load loads only these versions. None: config.pbtxt does so."""


class TritonRepository:
    """A directory of models, or object storage."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.is_bucket = "://" in root
        self._objects: ObjectStore | None = None
        if self.is_bucket:
            from ..staging import objects  # The import is slow, and a directory does not need it.

            self._objects = objects.ObjectStore(root)

    def check(self) -> None:
        """Raise OSError if the repository itself is missing: its models are then unreadable, not removed."""
        if self._objects is not None:
            self._objects.look()
        else:
            os.scandir(self.root).close()

    def override(self, model: str, versions: tuple[int, ...]) -> str | None:
        """Return the configuration (JSON) with which a load loads these versions. None: it does so anyway. Blocks,
        raises RepositoryError and OSError."""
        if not versions:
            return None  # Without a choice, the catalog finds a wrong configuration.
        found = self.look(model, versions)
        if found is not None and found.problem:
            raise RepositoryError(found.problem)
        return None if found is None else found.override

    def look(self, model: str, wanted: Iterable[int] = ()) -> ModelFiles | None:
        """Return a model as it is now, or None if it does not exist. Raises RepositoryError and OSError. `wanted` are
        the versions to load. Without them, the model's own configuration selects them. Blocks."""
        found = self._look(model, wanted)
        return None if found is None else found[0]

    def contents(self, model: str, wanted: Iterable[int] = ()) -> Contents | None:
        """Return the files of such a load, with the stamp of `look`, for staging. Raises as `look` does."""
        found = self._look(model, wanted)
        if found is None:
            return None
        files, source, listing = found
        return Contents(model, files.stamp, listing, source, files.parts, _manifest(source, files.versions))

    def _look(self, model: str, wanted: Iterable[int]) -> tuple[ModelFiles, ModelSource, Listing] | None:
        source = self._source(model)
        if source is None:
            return None
        config, strange = self.config(source)
        wanted = tuple(sorted(wanted))
        there = _versions(source)
        by_config = versions_to_serve(config, there)
        versions = tuple(each for each in there if each in wanted) if wanted else by_config
        override, problem = None, ""
        if wanted and versions != by_config:
            if strange:
                problem = (
                    f"{CONFIG} of {model} has fields that this policy does not know ({strange}), so it cannot choose "
                    f"versions {', '.join(map(str, wanted))}. Set version_policy {{ specific {{ versions: [ … ] }} }} "
                    "in the file"
                )
            else:
                override = with_versions(config, wanted)
        parts = tuple(sorted(self._parts(config, model)))
        # The content of an ensemble includes its parts: a changed part loads it again.
        inside = []
        for part in parts:
            if (whole := self._source(part)) is not None:
                inside.append(_listing(whole, versions_to_serve(self.config(whole)[0], _versions(whole))).stamp())
        listing = _listing(source, versions)
        stamp = listing.stamp("\0".join([override or "", *inside]))
        sizes = {file.path: file.size for file in listing.files}
        estimate: int | None = max(LEAST_MODEL_BYTES, int(sum(sizes.values()) * DISK_FACTOR))
        if parts:
            estimate = 0  # An ensemble uses no memory itself.
        elif code_backend(config.backend, config.platform, sizes.items()):
            estimate = None
        return ModelFiles(versions, stamp, parts, estimate, problem, override), source, listing

    def config(self, source: ModelSource) -> tuple[Any, str]:
        """Return a model's configuration (empty if it has none), and its unknown fields. Raises RepositoryError."""
        config = model_config_pb2.ModelConfig()
        where = f"{source.where}/{CONFIG}"
        try:
            text = source.read(CONFIG, MOST_CONFIG_BYTES).decode("utf-8")
        except FileNotFoundError:
            return config, ""
        except (OSError, UnicodeDecodeError) as error:
            raise RepositoryError(f"{where} cannot be read: {error}") from None
        try:
            return text_format.Parse(text, config), ""
        except text_format.ParseError as error:
            strange = str(error)
        config = model_config_pb2.ModelConfig()
        try:
            return text_format.Parse(text, config, allow_unknown_field=True), strange
        except (text_format.ParseError, RecursionError) as error:
            raise RepositoryError(f"{where} is not a model configuration: {error}") from None

    def _source(self, model: str) -> ModelSource | None:
        # A name is always one step below the root.
        if model in ("", ".", "..") or "/" in model or "\0" in model:
            return None
        if self._objects is not None:
            return self._objects.model(model)
        try:
            is_folder = stat.S_ISDIR(os.stat(os.path.join(self.root, model)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FolderSource(Path(self.root, model)) if is_folder else None

    def _parts(self, config: Any, model: str) -> set[str]:
        found: set[str] = set()
        left = [config]
        while left:
            for step in left.pop().ensemble_scheduling.step:
                part = step.model_name
                if part == model or part in found or (source := self._source(part)) is None:
                    continue
                found.add(part)
                left.append(self.config(source)[0])
        return found


def versions_to_serve(config: Any, there: tuple[int, ...]) -> tuple[int, ...]:
    """Return the existing versions that a configuration's version policy selects."""
    kind = config.version_policy.WhichOneof("policy_choice")
    if kind == "all":
        return there
    if kind == "specific":
        return tuple(each for each in there if each in config.version_policy.specific.versions)
    newest = config.version_policy.latest.num_versions if kind == "latest" else 1
    return there[-max(newest, 1) :]


def with_versions(config: Any, versions: Iterable[int]) -> str:
    """Return a configuration as JSON, with only these versions."""
    made = model_config_pb2.ModelConfig()
    made.CopyFrom(config)
    made.version_policy.specific.versions[:] = sorted(versions)
    text: str = json_format.MessageToJson(made, preserving_proto_field_name=True, indent=None)
    return text


def _manifest(source: ModelSource, versions: tuple[int, ...]) -> dict[str, ManifestFile]:
    """Return the manifest entries of these versions, by path. Raises RepositoryError."""
    found: dict[str, ManifestFile] = {}
    for version in versions:
        path = f"{version}/{PUBLISHED_MANIFEST}"
        try:
            manifest = Manifest.model_validate_json(source.read(path, MOST_MANIFEST_BYTES))
        except FileNotFoundError:
            continue
        except (OSError, ValidationError) as error:
            raise RepositoryError(f"{source.where}/{path} is not a readable manifest: {error}") from None
        found |= {published_path(file.path, version): file for file in manifest.files}
    return found


def _versions(source: ModelSource) -> tuple[int, ...]:
    """Return the existing versions as Triton counts them: directories with a number that does not begin with 0."""
    names = source.folders()
    return tuple(sorted(int(name) for name in names if name.isdecimal() and name.isascii() and name[0] != "0"))


def _listing(source: ModelSource, versions: tuple[int, ...]) -> Listing:
    """Return the files of a load: these versions, and files that all versions share."""
    return source.listing({str(each) for each in _versions(source)} - {str(each) for each in versions})
