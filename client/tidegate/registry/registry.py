"""The registry of models: registers versions, fetches them, and reads and writes aliases and records."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from tidegate_contracts.manifest import Manifest

from ..errors import BusyError, IntegrityError, NotFoundError, UsageError
from ..parallel import Progress, in_parallel
from . import version as words
from .artifacts import Artifacts
from .golden import Golden
from .manifest import checked_name, manifest_of
from .registration import Registration
from .server import Server
from .signing import SigningKey, verify
from .transfer import check_listing, download, read_verified
from .version import ATTEMPTS_FOLDER, RECORDS_FOLDER, REMOVALS_FOLDER, Record, Records, RegisteredVersion

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

MANIFEST_BYTES = 64 << 20
SMALL_BYTES = 16 << 20


class Registry:
    """The registered models of an MLflow server. All methods raise TidegateError."""

    def __init__(self, tracking_uri: str | None = None) -> None:
        """Open MLFLOW_TRACKING_URI, or another address. Raises UsageError, UnreachableError or RefusedError."""
        self._server = Server(tracking_uri)
        self.where = self._server.where  # its address, without secrets

    def register(
        self,
        entry: Path,
        *,
        registered_by: str,
        server: str | None = None,
        golden: Golden | None = None,
        key: SigningKey | None = None,
        manifest: Manifest | None = None,
        progress: Progress = lambda _bytes: None,
        unproven: str = "",
        tell: Callable[[str], None] = lambda _text: None,
    ) -> RegisteredVersion:
        """Register the entry in a directory. The same content always gives the same version.

        `server` is the inference server that the client model names. `manifest` is the result of `manifest_of` for the
        entry. `progress` gets the bytes sent, `tell` gets warnings for the user. `unproven` is why `registered_by` may
        be wrong. Does not check whether servers would serve the entry: call `registration.checked` first. Raises
        IntegrityError if the entry changes meanwhile.
        """
        manifest = manifest_of(entry) if manifest is None else manifest
        registration = Registration(
            self._server, entry, manifest, registered_by, unproven, server or "", golden, key, progress, tell
        )
        return self.version(manifest.model, registration.run())

    def versions(self, model: str) -> list[RegisteredVersion]:
        """Return the versions that `register` made, the oldest first. Raises NotFoundError without the model."""
        self._server.model(checked_name(model))
        found = [_pinned(each) for each in self._server.versions(model) if words.MANIFEST in each.tags]
        return sorted(found, key=lambda version: version.number)

    def version(self, model: str, which: int | str) -> RegisteredVersion:
        """Return one version by its number, an alias, or `latest`. It does not change when an alias moves."""
        aliases = self._aliases(model)
        if which == words.LATEST:
            if versions := self.versions(model):
                return versions[-1]
            raise NotFoundError(f"{model} has no registered version", where=self.where)
        if isinstance(which, int) or re.fullmatch(r"[0-9]{1,18}", which):
            number = int(which)
        elif which in aliases:
            number = aliases[which]
        else:
            do = f"its aliases are {', '.join(sorted(aliases))}" if aliases else "name a version by its number"
            raise NotFoundError(f"{model} has no alias {which!r}", where=self.where, do=do)
        try:
            if number >= words.MOST:  # the server would retry for minutes
                raise NotFoundError("no version has this number")
            with self._server.doing(f"version {number} of {model} cannot be read"):
                found = self._server.client.get_model_version(model, str(number))
        except NotFoundError:
            there = ", ".join(str(version.number) for version in self.versions(model)) or "none"
            do = f"its versions are {there}"
            raise NotFoundError(f"{model} has no version {number}", where=self.where, do=do) from None
        if words.MANIFEST not in found.tags:
            what = f"version {number} of {model} is not a model for an inference server"
            why = f"it has no tag {words.MANIFEST}, so `tidegate register` did not create it"
            raise UsageError(what, where=self.where, why=why, do="register the model's entry with `tidegate register`")
        return _pinned(found)

    def manifest(self, version: RegisteredVersion) -> Manifest:
        """Return the manifest of a version. Raises IntegrityError if it does not match the version's tag."""
        return self._manifest(version, self._artifacts(version))

    def golden(self, version: RegisteredVersion) -> Golden | None:
        """Return the golden request of a version, if it has one. Raises IntegrityError if it does not match its tag."""
        digest = version.tags.get(words.GOLDEN)
        if digest is None:
            return None
        artifacts = self._artifacts(version)
        try:
            text = read_verified(artifacts, words.extra_file("golden", digest), digest, SMALL_BYTES)
            return Golden.model_validate_json(text)
        except ValidationError:
            raise IntegrityError("the golden request cannot be read", where=artifacts.where) from None

    def verify_signature(self, version: RegisteredVersion, public_key: Path) -> None:
        """Raise IntegrityError unless the version is signed with the private key of this public key."""
        digest = version.tags.get(words.SIGNATURE)
        if digest is None:
            do = "register the same entry again with --key. The version stays the same and gets the signature"
            raise IntegrityError(f"version {version.number} of {version.model} is not signed", where=self.where, do=do)
        artifacts = self._artifacts(version)
        signature = read_verified(artifacts, words.extra_file("signature", digest), digest, SMALL_BYTES)
        verify(self._manifest(version, artifacts), signature, public_key, artifacts.where)

    def fetch(self, version: RegisteredVersion, folder: Path, progress: Progress = lambda _bytes: None) -> Manifest:
        """Download a version's entry to a directory, verify every file, and return its manifest.

        Continues an interrupted fetch. Raises IntegrityError for files that differ from the registered ones, and
        UnfinishedError if a file cannot be written.
        """
        artifacts = self._artifacts(version)
        manifest = self._manifest(version, artifacts)
        check_listing(artifacts, words.ENTRY_FOLDER, manifest)
        download(artifacts, words.ENTRY_FOLDER, manifest.files, folder, progress)
        return manifest

    def read_file(self, version: RegisteredVersion, path: str) -> bytes:
        """Return one verified file of a version's entry. Raises NotFoundError if there is no such file."""
        artifacts = self._artifacts(version)
        digests = {file.path: file.sha256 for file in self._manifest(version, artifacts).files}
        if path not in digests:
            what = f"version {version.number} of {version.model} has no file {path}"
            raise NotFoundError(what, where=artifacts.where)
        return read_verified(artifacts, f"{words.ENTRY_FOLDER}/{path}", digests[path], SMALL_BYTES)

    def alias(self, model: str, alias: str) -> int | None:
        """Return the version of an alias, or None. Raises NotFoundError without the model."""
        return self._aliases(model).get(alias)

    def set_alias(self, model: str, alias: str, number: int, *, expect: int | None) -> None:
        """Move an alias that is expected at a version (None: it must not exist). Otherwise raises BusyError. MLflow has
        no atomic compare-and-set, so callers need their own lock."""
        there = self.alias(model, alias)
        if there == number:
            return
        self._expect(model, alias, there, expect)
        with self._server.doing(f"the alias {alias} could not be moved to version {number} of {model}"):
            self._server.client.set_registered_model_alias(model, alias, str(number))
        self._expect(model, alias, self.alias(model, alias), number)

    def remove_alias(self, model: str, alias: str, *, expect: int | None) -> None:
        there = self.alias(model, alias)
        self._expect(model, alias, there, expect)
        if there is not None:
            with self._server.doing(f"the alias {alias} of {model} could not be removed"):
                self._server.client.delete_registered_model_alias(model, alias)

    def tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        self._server.tag(version.model, str(version.number), key, value)

    def append_record(self, version: RegisteredVersion, record: Record) -> None:
        """Add a record of an operation on a version. Each record is a separate file that never changes."""
        if (record.model, record.version) != (version.model, version.number):
            raise ValueError("the record is of another version")
        self._server.run_artifacts(version.run_id).write(record.new_path(), record.content())

    def records(self, model: str) -> Records:
        """Return the records of all operations on a model, the oldest first. Raises NotFoundError without the model.
        `unreadable` names files that are not records. A decision that depends on a missing record must check it."""
        return self._found(model, RECORDS_FOLDER, REMOVALS_FOLDER)

    def attempts(self, model: str) -> Records:
        """Return the records of started and failed operations, the oldest first."""
        return self._found(model, ATTEMPTS_FOLDER)

    def _found(self, model: str, *folders: str) -> Records:
        found = in_parallel(lambda version: self._records(version, folders), self.versions(model))
        return Records(
            (record for records in found for record in records),
            (each for records in found for each in records.unreadable),
        )

    def _records(self, version: RegisteredVersion, folders: Iterable[str]) -> Records:
        try:
            artifacts = self._server.run_artifacts(version.run_id)
        except NotFoundError:
            return Records([], [f"the history of version {version.number}, whose run {version.run_id} is gone,"])
        records, unreadable = [], []
        for path, size in sorted(chain.from_iterable(artifacts.list(folder)[0].items() for folder in folders)):
            record = None
            if size <= words.LIMIT_BYTES:
                with suppress(ValidationError):
                    record = Record.model_validate_json(artifacts.read(path, words.LIMIT_BYTES))
            if record is None or record.when > datetime.now(UTC) + words.AHEAD:
                unreadable.append(f"{artifacts.where}/{path}")
                continue
            # The permission to write to one run does not extend to other versions. Two versions can share a run.
            if (record.model, record.version) == (version.model, version.number):
                records.append(record)
        return Records(records, unreadable)

    def _aliases(self, model: str) -> dict[str, int]:
        found = self._server.model(checked_name(model)).aliases
        return {alias: int(number) for alias, number in dict(found).items()}

    def _expect(self, model: str, alias: str, there: int | None, expect: int | None) -> None:
        if there != expect:
            now = "does not exist" if there is None else f"is at version {there}"
            before = "not to exist" if expect is None else f"at version {expect}"
            what = f"the alias {alias} of {model} {now}, but was expected {before}"
            why = "someone else moved it meanwhile"
            raise BusyError(what, where=self.where, why=why, do="read `tidegate history`, then decide whether to retry")

    def _artifacts(self, version: RegisteredVersion) -> Artifacts:
        with self._server.doing(f"the files of version {version.number} of {version.model} could not be found"):
            uri = self._server.client.get_model_version_download_uri(version.model, str(version.number))
        return self._server.artifacts(uri)

    def _manifest(self, version: RegisteredVersion, artifacts: Artifacts) -> Manifest:
        content = read_verified(artifacts, words.MANIFEST_FILE, version.manifest_sha256, MANIFEST_BYTES)
        try:
            manifest = Manifest.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise IntegrityError("the manifest cannot be read", where=artifacts.where, why=first) from None
        if manifest.model != version.model:
            what = f"the manifest is of model {manifest.model!r}, but the version is of {version.model!r}"
            raise IntegrityError(what, where=artifacts.where)
        return manifest


def _pinned(found: "ModelVersion") -> RegisteredVersion:
    return RegisteredVersion(
        model=found.name,
        number=int(found.version),
        run_id=found.run_id or "",
        source=found.source or "",
        manifest_sha256=found.tags[words.MANIFEST],
        registered_by=found.tags.get(words.REGISTERED_BY, ""),
        client_model=found.tags.get(words.CLIENT),
        tags=dict(found.tags),
    )
