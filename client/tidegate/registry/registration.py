"""Registers an entry: step after step, each of which a second run finds done or does again.

The parent run has the files; the version points to them; the nested child run has the client model. A version exists
only when all of its files do.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate_contracts.manifest import Manifest

from ..errors import TidegateError
from ..findings import errors
from ..kinds import kind_of_entry
from ..parallel import Progress, in_parallel
from .artifacts import Artifacts
from .golden import Golden
from .manifest import path_on_disk, version_folder
from .pyfuncs import client_model, empty_model
from .quiet import quiet
from .records import RECORDS_FOLDER, Record, new_path
from .server import Server
from .signing import SigningKey, sign
from .transfer import upload
from .version import (
    CLIENT,
    CLIENT_SUFFIX,
    ENTRY_FOLDER,
    GOLDEN,
    IS_CLIENT,
    IS_PARENT,
    MANIFEST,
    MANIFEST_FILE,
    MODEL,
    REGISTERED_BY,
    SIGNATURE,
    UNPROVEN,
    VERSION,
    golden_file,
    signature_file,
)

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

SOURCE = "model"
"""Below the artifacts of a run: where its model is, for MLflow and for us."""
REGISTER_RECORD = f"{RECORDS_FOLDER}/registered.json"


class Registration:
    """One entry on its way into the registry."""

    def __init__(
        self,
        server: Server,
        entry: Path,
        manifest: Manifest,
        registered_by: str,
        inference_server: str | None,
        unproven: str,
        tell: Callable[[str], None],
    ) -> None:
        """Take what is registered, who does it, and which inference server the client model is to name."""
        self._server, self._entry, self._manifest = server, entry, manifest
        self._by, self._inference_server = registered_by, inference_server
        self._unproven, self._tell = unproven, tell
        self._model, self._digest = manifest.model, manifest.digest()

    def run(self, golden: Golden | None, key: SigningKey | None, progress: Progress | None) -> int:
        """Do what is not done yet; return the number of the version."""
        version = self._version()
        if version is None:
            run_id, artifacts = self._parent()
            self._send(artifacts, progress)
            self._server.make_model(self._model, {MODEL: "true"})
            version = self._create(run_id, artifacts, golden, key)
        else:
            if progress is not None:
                progress(self._manifest.size)
            self._add(version, golden, key)
        self._client(version)
        self._record(version)
        with self._server.doing("the run cannot be ended"):
            self._server.client.set_terminated(_run(version))
        return int(version.version)

    def _version(self) -> "ModelVersion | None":
        """Return the version that has this content already: the first one, should there be two."""
        same = [each for each in self._server.versions(self._model) if each.tags.get(MANIFEST) == self._digest]
        return min(same, key=lambda version: int(version.version), default=None)

    def _parent(self) -> tuple[str, Artifacts]:
        """Return the run that has, or is to have, the files; one that was begun and not finished is gone on with."""
        experiment = self._server.experiment_id()
        tags = {MODEL: self._model, MANIFEST: self._digest, IS_PARENT: "true"}
        begun = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        with self._server.doing("the run of the version cannot be made"):
            found = self._server.client.search_runs([experiment], begun, max_results=1, order_by=["start_time ASC"])
            run = (
                found[0]
                if found
                else self._server.client.create_run(
                    experiment, tags=tags | self._who(), run_name=f"{self._model} {self._digest[:12]}"
                )
            )
        return run.info.run_id, self._server.artifacts(f"{run.info.artifact_uri}/{SOURCE}")

    def _send(self, artifacts: Artifacts, progress: Progress | None) -> None:
        version = version_folder(self._entry)
        upload(
            artifacts,
            ENTRY_FOLDER,
            self._manifest,
            lambda path: path_on_disk(self._entry, version, path),
            progress,
        )
        _write_all(artifacts, empty_model() | {MANIFEST_FILE: self._manifest.canonical()})

    def _create(
        self, run_id: str, artifacts: Artifacts, golden: Golden | None, key: SigningKey | None
    ) -> "ModelVersion":
        tags = {MODEL: self._model, MANIFEST: self._digest, IS_PARENT: "true"} | self._by_whom()
        tags |= self._extras(artifacts, golden, key)
        with self._server.doing(f"the version of {self._model} cannot be made"), quiet():
            uri = self._server.client.get_run(run_id).info.artifact_uri
            made = self._server.client.create_model_version(self._model, f"{uri}/{SOURCE}", run_id, tags=tags)
            first = self._version()
            if first is not None and int(first.version) < int(made.version):
                # Somebody else registered the same content at the same moment, and came first.
                self._server.client.delete_model_version(self._model, made.version)
                self._add(first, golden, key)
                return first
        return made

    def _add(self, version: "ModelVersion", golden: Golden | None, key: SigningKey | None) -> None:
        """Give a version that is there what it had not: a golden request, a signature, a registrant who is proven."""
        wanted_golden = golden if golden and golden.digest() != version.tags.get(GOLDEN) else None
        wanted_key = key if SIGNATURE not in version.tags else None
        tags = self._extras(self._server.artifacts(str(version.source)), wanted_golden, wanted_key)
        if wanted_golden is not None:
            self._replaced(version, wanted_golden)
        if version.tags.get(UNPROVEN) and not self._unproven:
            tags |= self._by_whom() | {UNPROVEN: ""}
        for tag, value in tags.items():
            with self._server.doing(f"version {version.version} cannot be tagged"):
                self._server.client.set_model_version_tag(self._model, version.version, tag, value)

    def _replaced(self, version: "ModelVersion", golden: Golden) -> None:
        """Write down that a version is to be tried with another request from now on."""
        before, after = version.tags.get(GOLDEN), golden.digest()
        record = Record(
            what="golden",
            model=self._model,
            version=int(version.version),
            who=self._by,
            when=datetime.now(UTC),
            manifest_sha256=self._digest,
            note=f"golden request {before or 'none'} → {after}",
        )
        content = record.model_dump_json(by_alias=True).encode()
        _write_all(self._server.run_artifacts(_run(version)), {new_path(record): content})
        had = f"had the golden request {before[:12]}" if before else "had no golden request"
        self._tell(
            f"version {version.version} of {self._model} {had}, and is tried with {after[:12]} from now on: "
            f"`tidegate history {self._model}` shows it"
        )

    def _extras(self, artifacts: Artifacts, golden: Golden | None, key: SigningKey | None) -> dict[str, str]:
        """Write a golden request and a signature; return the tags that make them count."""
        files, tags = {}, {}
        if golden is not None:
            tags[GOLDEN] = golden.digest()
            files[golden_file(tags[GOLDEN])] = golden.canonical()
        if key is not None:
            signature = sign(self._manifest, key)
            tags[SIGNATURE] = hashlib.sha256(signature).hexdigest()
            files[signature_file(tags[SIGNATURE])] = signature
        _write_all(artifacts, files)
        return tags

    def _client(self, version: "ModelVersion") -> None:
        """Register the client model of the version: a nested run with the code that calls it."""
        if CLIENT in version.tags:
            return
        name, number = f"{self._model}{CLIENT_SUFFIX}", str(version.version)
        same = [each for each in self._server.versions(name) if each.tags.get(VERSION) == number]
        made = same[0].version if same else self._make_client(version, name)
        with self._server.doing(f"version {number} cannot be tagged"):
            self._server.client.set_model_version_tag(self._model, number, CLIENT, f"{name}/{made}")

    def _make_client(self, version: "ModelVersion", name: str) -> str:
        client, number = self._server.client, str(version.version)
        context = {
            "parent_run_id": _run(version),
            "inference_server_name": self._inference_server or "",
            "model_name": self._model,
            "model_version": number,
        }
        with self._server.doing("the run of the client model cannot be made"):
            experiment = client.get_run(_run(version)).info.experiment_id
            tags = {"mlflow.parentRunId": _run(version), IS_CLIENT: "true", MODEL: self._model} | self._who()
            run = client.create_run(experiment, tags=tags, run_name=f"{name} {number}")
            for parameter, value in (
                ("parent_run_id", _run(version)),
                ("triton_model_name", self._model),
                ("triton_model_version", number),
            ):
                client.log_param(run.info.run_id, parameter, value)
        source = f"{run.info.artifact_uri}/{SOURCE}"
        _write_all(self._server.artifacts(source), client_model(context))
        self._server.make_model(name, {IS_CLIENT: "true"})
        with self._server.doing(f"the version of {name} cannot be made"), quiet():
            tags = {IS_CLIENT: "true", VERSION: number, REGISTERED_BY: self._by}
            made = client.create_model_version(name, source, run.info.run_id, tags=tags)
            client.set_terminated(run.info.run_id)
        return str(made.version)

    def _record(self, version: "ModelVersion") -> None:
        artifacts = self._server.run_artifacts(_run(version))
        if REGISTER_RECORD in artifacts.list(RECORDS_FOLDER)[0]:
            return
        record = Record(
            what="register",
            model=self._model,
            version=int(version.version),
            who=version.tags.get(REGISTERED_BY, self._by),
            when=datetime.fromtimestamp(version.creation_timestamp / 1000, UTC),
            manifest_sha256=self._digest,
        )
        _write_all(artifacts, {REGISTER_RECORD: record.model_dump_json(by_alias=True).encode()})

    def _by_whom(self) -> dict[str, str]:
        return {REGISTERED_BY: self._by} | ({UNPROVEN: self._unproven} if self._unproven else {})

    def _who(self) -> dict[str, str]:
        return {REGISTERED_BY: self._by, "mlflow.user": self._by, "mlflow.source.name": "tidegate register"}


def checked(entry: Path, model: str, golden: Golden | None = None) -> list[str]:
    """Return what is to be said of an entry; raises TidegateError when its servers would not serve it as a model.

    Raises UsageError for a golden request that names other tensors than the configuration does.
    """
    kind = kind_of_entry(entry)
    findings = kind.check(entry, model)
    if wrong := errors(findings):
        lines = "\n".join(map(str, wrong)).replace("\n", "\n  ")
        raise TidegateError(
            f"Triton would not serve this entry, and it is not registered\n  {lines}",
            where=str(entry),
            do="mend it; `tidegate model check` looks at it again",
        )
    if golden is not None:
        golden.check(*kind.tensors(entry), str(entry))
    return [*map(str, findings), *_strangers(entry)]


def _strangers(entry: Path) -> list[str]:
    """Return what is to be said of files that editors, notebooks and Python leave, and that may hold secrets (.env)."""
    says = "warning: it goes into the registry, for all who may read that; take it away if it is not the model's"
    files = sorted(path for path in entry.rglob("*") if path.is_file())
    return [
        f"{file}: {says}"
        for file in files
        if any(step.startswith(".") or step == "__pycache__" for step in file.relative_to(entry).parts)
    ]


def _run(version: "ModelVersion") -> str:
    return str(version.run_id)


def _write_all(artifacts: Artifacts, files: dict[str, bytes]) -> None:
    in_parallel(lambda file: artifacts.write(*file), files.items())
