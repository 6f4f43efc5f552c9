"""Files in the artifact store, by the URI that the registry gives: MLflow's own repositories read and write them.

They stream, through MLflow's server or straight to the store, with MLflow's own settings for credentials,
certificates, tries and time-outs. Nothing is unpickled.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from ..errors import NotFoundError, RefusedError, TidegateError, UnreachableError, UsageError
from ..failures import of_store, shown, translated
from ..hashing import hashed
from .settings import settings

SERVED: Final = ("mlflow-artifacts", "http", "https")
"""Schemes of what MLflow's server hands through, so that clients have no key to the store."""
DIRECT: Final = ("s3", "gs", "abfss", "wasbs", "file", "")
"""Schemes of stores that clients reach by themselves, and of folders."""
SLOWEST_BYTES_PER_SECOND: Final = 5e6
"""MLflow's server answers an upload when it has passed it on, so that large ones wait longer for the answer."""


class Artifacts:
    """The artifacts below one URI. Paths are below it, with `/` between their steps."""

    def __init__(self, uri: str, tracking_uri: str) -> None:
        """Open the artifacts of a registry at `tracking_uri`; raises UsageError for a kind of URI that is not known.

        Raises RefusedError for another server than the registry's: its credential goes with each request.
        """
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

        self.where = shown(uri)  # The URI for messages, without secrets.
        scheme = urlsplit(uri).scheme
        if scheme not in (*SERVED, *DIRECT):
            do = "have MLflow hand its artifacts through (`mlflow server --serve-artifacts`)"
            raise UsageError("artifacts of this kind cannot be reached", where=self.where, do=do)
        self._served = scheme in SERVED
        with self._translated("the artifacts cannot be reached"):
            if self._served:
                resolve: Any = MlflowArtifactsRepository.resolve_uri
                _check_server(resolve(uri, tracking_uri) if scheme == SERVED[0] else uri, tracking_uri, self.where)
            self._repository: Any = get_artifact_repository(uri, tracking_uri)

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the files of one folder with their sizes in bytes, and its folders, all below the URI; not deeper."""
        what = f"the folder {folder or '/'} cannot be listed"
        with self._translated(what):
            try:
                found = self._repository.list_artifacts(folder or None)
            except (ValueError, LookupError, TypeError, AttributeError):
                do = "look at what stands before the MLflow server, or at MLFLOW_TRACKING_URI"
                raise UnreachableError(what, where=self.where, why="the answer is not MLflow's", do=do) from None
        files = {each.path: each.file_size or 0 for each in found if not each.is_dir}
        return files, [each.path for each in found if each.is_dir]

    def download(self, path: str, to: Path) -> tuple[int, str]:
        """Write a file to disk; return size and SHA-256 of what came. Raises TidegateError, and OSError of the disk.

        List the folder first: for a file that is not there, a server with a store behind it answers 500, and MLflow's
        client tries for minutes.
        """
        what = f"{path} cannot be downloaded"
        try:
            with self._translated(what):
                self._repository._download_file(path, str(to))  # what every kind of repository has to have
        except IsADirectoryError as error:  # of artifacts that lie in a folder
            raise NotFoundError(what, where=self.where, why=str(error)) from None
        to.chmod(0o644)  # Of artifacts that lie in a folder, MLflow copies the mode, too.
        return hashed(to)

    def upload(self, local: Path, path: str) -> None:
        """Send a file of the same name, whole or not at all; one that is there is replaced."""
        folder, _, name = path.rpartition("/")
        assert name == local.name, "MLflow names it as it is named on disk"
        longer = local.stat().st_size / SLOWEST_BYTES_PER_SECOND
        with settings(longer), self._translated(f"{path} cannot be uploaded"):
            self._repository.log_artifact(str(local), folder or None)

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a small file; of a larger one, a byte more than the limit. Raises like `download`."""
        with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
            file = Path(scratch, "content")
            self.download(path, file)
            with file.open("rb") as opened:
                return opened.read(limit + 1)

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, whole or not at all."""
        with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
            file = Path(scratch, path.rpartition("/")[2])
            file.write_bytes(content)
            self.upload(file, path)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn whatever a store's library raises into one of our errors; what is wrong with a file on disk passes."""
        try:
            with settings(), translated(what, self.where) if self._served else nullcontext():
                yield
        except (TidegateError, OSError):
            raise
        except ImportError as error:
            what = "the library for artifacts of this kind is not installed"
            do = (
                "install it as MLflow says (boto3, google-cloud-storage or azure-storage-blob), or have MLflow hand "
                "its artifacts through (`mlflow server --serve-artifacts`)"
            )
            raise UsageError(what, where=self.where, why=str(error), do=do) from None
        except Exception as error:  # each store's library has errors of its own
            raise of_store(error, self.where, what) from None


def _check_server(uri: str, tracking_uri: str, where: str) -> None:
    if _server(uri) != _server(tracking_uri):
        what = "these artifacts are on another server than the registry, which is not sent the registry's credential"
        do = (
            "deploy nothing of it before you know who made the version; have the registry hand its artifacts through "
            "itself (`mlflow server --serve-artifacts`)"
        )
        raise RefusedError(what, where=where, why=f"the registry is {shown(tracking_uri)}", do=do)


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
