"""Registers an entry in steps that a second run skips or repeats.

The parent run has the files, the version points to them, and the nested child run has the client model. A version
exists only after all of its files. For MLflow these are two models, logged as code: an empty one with the files, and
the client model.
"""

import getpass
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tidegate_contracts.manifest import Manifest

from ..calling import MODEL_SCRIPT
from ..errors import TidegateError, UsageError, hints_once, install
from ..findings import Finding, errors, warning
from ..kinds import kind_of_entry
from ..parallel import Progress, in_parallel
from . import version as words
from .artifacts import Artifacts
from .golden import Golden
from .manifest import path_on_disk
from .server import Server, quiet
from .signing import SigningKey, sign
from .transfer import upload
from .version import RECORDS_FOLDER, Record

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

PROXY: Final = "DOMINO_INFERENCE_PROXY"
DOMINO_USER: Final = "DOMINO_STARTING_USERNAME"
WHOAMI_SECONDS: Final = 10.0
SOURCE: Final = "model"  # The directory of a run's model, below its artifacts.
_KEEP: Final = (".keep", ".gitkeep")  # They keep a directory without other files, such as an ensemble's version.
REGISTER_RECORD: Final = f"{RECORDS_FOLDER}/registered.json"

EMPTY_SCRIPT: Final = Path(__file__).with_name("empty_model.py")
CONTEXT: Final = "model_context"
REQUIREMENTS: Final = ("numpy", "pandas", "tritonclient>=2.70", "urllib3>=2")
"""Requirements of the client model, in addition to MLflow and the code that it contains."""
CODE: Final = ("__init__.py", "errors.py", "names.py", "calling/*.py")
"""The part of this package that calls models. The client model contains it, so that endpoints need not install it."""


@dataclass(frozen=True)
class Registration:
    """The registration of one entry by one user."""

    server: Server
    entry: Path
    manifest: Manifest
    registered_by: str
    unproven: str  # Why `registered_by` may be wrong.
    inference_server: str  # The one that the client model names.
    golden: Golden | None
    key: SigningKey | None
    progress: Progress
    tell: Callable[[str], None]

    def run(self) -> int:
        if (version := self._version()) is None:
            version = self._create()
        else:
            self.progress(self.manifest.size)
            self._add(version)
        if kind_of_entry(self.entry).speaks_v2:
            self._client(version)
        self._record(version)
        with self.server.doing("the run could not be ended"):
            self.server.client.set_terminated(str(version.run_id))
        return int(version.version)

    @property
    def _model(self) -> str:
        return self.manifest.model

    @property
    def _parent_tags(self) -> dict[str, str]:
        return {words.MODEL: self._model, words.MANIFEST: self.manifest.digest(), words.IS_PARENT: "true"}

    @property
    def _by_whom(self) -> dict[str, str]:
        return {words.REGISTERED_BY: self.registered_by} | ({words.UNPROVEN: self.unproven} if self.unproven else {})

    @property
    def _run_tags(self) -> dict[str, str]:
        by = self.registered_by
        return {words.REGISTERED_BY: by, "mlflow.user": by, "mlflow.source.name": "tidegate register"}

    def _version(self) -> "ModelVersion | None":
        """Return the version with this content, the first if there are several."""
        digest = self.manifest.digest()
        same = [each for each in self.server.versions(self._model) if each.tags.get(words.MANIFEST) == digest]
        return min(same, key=lambda version: int(version.version), default=None)

    def _create(self) -> "ModelVersion":
        """Upload the files, then create the version. Continues an unfinished run."""
        client, experiment = self.server.client, self.server.experiment_id()
        begun = " and ".join(f"tags.`{key}` = '{value}'" for key, value in self._parent_tags.items())
        with self.server.doing("the run of the version could not be created"):
            found = client.search_runs([experiment], begun, max_results=1, order_by=["start_time ASC"])
            name, tags = f"{self._model} {self.manifest.digest()[:12]}", self._parent_tags | self._run_tags
            run = found[0] if found else client.create_run(experiment, tags=tags, run_name=name)
        source = f"{run.info.artifact_uri}/{SOURCE}"
        artifacts, folder = self.server.artifacts(source), kind_of_entry(self.entry).version_folder(self.entry)
        on_disk = partial(path_on_disk, self.entry, folder)
        upload(artifacts, words.ENTRY_FOLDER, self.manifest, on_disk, self.progress)
        empty = _saved(python_model=str(EMPTY_SCRIPT), pip_requirements=[_mlflow()])
        _write_all(artifacts, empty | {words.MANIFEST_FILE: self.manifest.canonical()})
        self.server.make_model(self._model, {words.MODEL: "true"})
        tags = self._parent_tags | self._by_whom | self._extras(artifacts, self.golden, self.key)
        with self.server.doing(f"the version of {self._model} could not be created"), quiet():
            return client.create_model_version(self._model, source, run.info.run_id, tags=tags)

    def _add(self, version: "ModelVersion") -> None:
        """Add to an existing version a golden request, a signature, or the proof of its registrant."""
        before = version.tags.get(words.GOLDEN)
        golden = self.golden if self.golden and self.golden.digest() != before else None
        key = self.key if words.SIGNATURE not in version.tags else None
        tags = self._extras(self.server.artifacts(str(version.source)), golden, key)
        if golden is not None:
            after = golden.digest()
            note = f"golden request {before or 'none'} → {after}"
            record = self._new_record("golden", version, self.registered_by, datetime.now(UTC))
            record = record.model_copy(update={"note": note})
            self.server.run_artifacts(str(version.run_id)).write(record.new_path(), record.content())
            had = f"had the golden request {before[:12]}" if before else "had no golden request"
            self.tell(
                f"version {version.version} of {self._model} {had}. From now on it is tested with {after[:12]}: "
                f"see `tidegate history {self._model}`"
            )
        if version.tags.get(words.UNPROVEN) and not self.unproven:
            tags |= self._by_whom | {words.UNPROVEN: ""}
        for tag, value in tags.items():
            self.server.tag(self._model, str(version.version), tag, value)

    def _extras(self, artifacts: Artifacts, golden: Golden | None, key: SigningKey | None) -> dict[str, str]:
        files, tags = {}, {}
        if golden is not None:
            tags[words.GOLDEN] = golden.digest()
            files[words.extra_file("golden", golden.digest())] = golden.canonical()
        if key is not None:
            signature = sign(self.manifest, key)
            tags[words.SIGNATURE] = hashlib.sha256(signature).hexdigest()
            files[words.extra_file("signature", tags[words.SIGNATURE])] = signature
        _write_all(artifacts, files)
        return tags

    def _client(self, version: "ModelVersion") -> None:
        if words.CLIENT in version.tags:
            return
        name, number = f"{self._model}{words.CLIENT_SUFFIX}", str(version.version)
        same = [each for each in self.server.versions(name) if each.tags.get(words.VERSION) == number]
        made = same[0].version if same else self._make_client(version, name)
        self.server.tag(self._model, number, words.CLIENT, f"{name}/{made}")

    def _make_client(self, version: "ModelVersion", name: str) -> str:
        client, parent, number = self.server.client, str(version.run_id), str(version.version)
        named = {"parent_run_id": parent, "triton_model_name": self._model, "triton_model_version": number}
        with self.server.doing("the run of the client model could not be created"):
            experiment = client.get_run(parent).info.experiment_id
            tags = {"mlflow.parentRunId": parent, words.IS_CLIENT: "true", words.MODEL: self._model} | self._run_tags
            run = client.create_run(experiment, tags=tags, run_name=f"{name} {number}")
            for key, value in named.items():
                client.log_param(run.info.run_id, key, value)
        source = f"{run.info.artifact_uri}/{SOURCE}"
        context = {"parent_run_id": parent, "model_name": self._model, "model_version": number}
        context["inference_server_name"] = self.inference_server
        _write_all(self.server.artifacts(source), _client_model(context))
        self.server.make_model(name, {words.IS_CLIENT: "true"})
        with self.server.doing(f"the version of {name} could not be created"), quiet():
            tags = {words.IS_CLIENT: "true", words.VERSION: number, words.REGISTERED_BY: self.registered_by}
            made = client.create_model_version(name, source, run.info.run_id, tags=tags)
            client.set_terminated(run.info.run_id)
        return str(made.version)

    def _record(self, version: "ModelVersion") -> None:
        artifacts = self.server.run_artifacts(str(version.run_id))
        if REGISTER_RECORD not in artifacts.list(RECORDS_FOLDER)[0]:
            who = version.tags.get(words.REGISTERED_BY, self.registered_by)
            when = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
            artifacts.write(REGISTER_RECORD, self._new_record("register", version, who, when).content())

    def _new_record(
        self, what: Literal["register", "golden"], version: "ModelVersion", who: str, when: datetime
    ) -> Record:
        digest, number = self.manifest.digest(), int(version.version)
        return Record(what=what, model=self._model, version=number, who=who, when=when, manifest_sha256=digest)


def checked(entry: Path, model: str, golden: Golden | None = None, *, trusted: bool = False) -> list[str]:
    """Return the warnings about an entry, whose code may be `trusted`. Raises TidegateError if servers would not serve
    it, or if it cannot answer the golden request."""
    kind = kind_of_entry(entry)
    findings = kind.check(entry, model, trusted=trusted)
    if wrong := errors(findings):
        lines = "\n".join(hints_once(map(str, wrong))).replace("\n", "\n  ")
        what = f"no server would serve this entry, so it was not registered\n  {lines}"
        raise TidegateError(what, where=entry, do="correct it, and run `tidegate model check` to check it again")
    if golden is not None:
        kind.check_golden(entry, golden, str(entry))
    found = {each.where for each in findings}
    strangers = [each for each in _strangers(entry) if each.where not in found]
    return list(hints_once(f"{entry / each.where}: {each.text}" for each in (*findings, *strangers)))


def _strangers(entry: Path) -> Iterator[Finding]:
    """Yield warnings about files of editors, notebooks and Python, which may contain secrets (.env)."""
    for file in sorted(entry.rglob("*")):
        path = file.relative_to(entry)
        odd = any(step.startswith(".") or step == "__pycache__" for step in path.parts)
        if odd and file.is_file() and file.name not in _KEEP:
            why, do = "every user of the registry can read it", "remove it if it is not part of the model"
            yield warning("this file would be registered", path.as_posix(), why, do)


def registrant(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Return the caller's name, and why it may be wrong. The reason is empty if a proxy authenticated the caller.

    The proxy is that of DOMINO_INFERENCE_PROXY, else any of those in `environments.json`. Otherwise the name is
    Domino's for the user that started the run, or else the login name.
    """
    from ..calling.proxy import ProxyClient

    proxy = "no proxy was configured to authenticate you"
    for url in _proxies(environ):
        try:
            with ProxyClient(url, seconds=WHOAMI_SECONDS) as client:
                return client.whoami().principal, ""
        except TidegateError as error:
            proxy = f"the proxy at {url} could not authenticate you: {error.what}"
    if name := environ.get(DOMINO_USER, "").strip():
        return name, f"the name is from {DOMINO_USER}, and {proxy}"
    with suppress(KeyError, OSError):
        return getpass.getuser(), f"it is the login name, and {proxy}"
    return f"uid-{os.getuid()}", f"it is the user ID, because this machine has no name for it, and {proxy}"


def _proxies(environ: Mapping[str, str]) -> Iterator[str]:
    from ..environments import ENVIRONMENTS, load

    if proxy := environ.get(PROXY, "").strip():
        yield proxy
    elif environ.get(ENVIRONMENTS, "").strip():
        known = load().environments
        yield from (plane.proxy_url for environment in known for plane in environment.planes)


def _write_all(artifacts: Artifacts, files: dict[str, bytes]) -> None:
    in_parallel(lambda file: artifacts.write(*file), files.items())


def _client_model(context: dict[str, str]) -> dict[str, bytes]:
    package = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
        file = Path(scratch, f"{CONTEXT}.json")
        file.write_text(json.dumps(context, indent=2), "utf-8")
        code = Path(scratch, package.name)
        for source in (found for pattern in CODE for found in package.glob(pattern)):
            copy = code / source.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
        return _saved(
            python_model=str(MODEL_SCRIPT),
            artifacts={CONTEXT: str(file)},
            code_paths=[str(code)],
            pip_requirements=[_mlflow(), *REQUIREMENTS],
        )


def _saved(**options: Any) -> dict[str, bytes]:
    try:
        import mlflow.pyfunc
    except ImportError as error:
        what = "registering needs pandas, because MLflow's models need it"
        raise UsageError(what, why=str(error), do=install("pandas")) from None
    with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch, quiet():
        folder = Path(scratch, "model")
        mlflow.pyfunc.save_model(folder, **options)
        return {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and "__pycache__" not in file.parts
        }


def _mlflow() -> str:
    import mlflow

    return f"mlflow-skinny=={mlflow.__version__}"
