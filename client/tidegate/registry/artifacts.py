"""Files in the artifact store, by the URI from the registry. MLflow's own repositories read and write them.

They stream through MLflow's server or directly to the store. MLflow's settings for credentials, certificates, retries
and timeouts apply. Nothing is unpickled.
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
"""URI schemes of artifacts that MLflow's server proxies, so that clients need no credential for the store."""
DIRECT: Final = ("s3", "gs", "abfss", "wasbs", "file", "")
"""URI schemes of stores that clients access directly, and of directories."""
SLOWEST_BYTES_PER_SECOND: Final = 5e6
"""MLflow's server responds to an upload after passing it on, so a large one needs a longer timeout."""


class Artifacts:
    """The artifacts below one URI. Paths are relative to it."""

    def __init__(self, uri: str, tracking_uri: str) -> None:
        """Open the artifacts of the registry at `tracking_uri`. Raises UsageError for an unknown kind of URI. Raises
        RefusedError for another server than the registry's, because requests send the registry's credential."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
        from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

        self.where = shown(uri)  # the URI for messages, without secrets
        scheme = urlsplit(uri).scheme
        if scheme not in (*SERVED, *DIRECT):
            do = "run MLflow with proxied artifacts (`mlflow server --serve-artifacts`)"
            raise UsageError("this kind of artifact URI is not supported", where=self.where, do=do)
        self._served = scheme in SERVED
        with self._translated("the artifacts cannot be reached"):
            if self._served:
                resolve: Any = MlflowArtifactsRepository.resolve_uri
                _check_server(resolve(uri, tracking_uri) if scheme == SERVED[0] else uri, tracking_uri, self.where)
            self._repository: Any = get_artifact_repository(uri, tracking_uri)

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """Return the files of one directory with their sizes in bytes, and its directories. Not recursive."""
        what = f"the directory {folder or '/'} cannot be listed"
        with self._translated(what):
            try:
                found = self._repository.list_artifacts(folder or None)
            except (ValueError, LookupError, TypeError, AttributeError):
                do = "check MLFLOW_TRACKING_URI, and any gateway in front of the MLflow server"
                raise UnreachableError(what, where=self.where, why="the response is not MLflow's", do=do) from None
        files = {each.path: each.file_size or 0 for each in found if not each.is_dir}
        return files, [each.path for each in found if each.is_dir]

    def download(self, path: str, to: Path) -> tuple[int, str]:
        """Download a file, and return its size and SHA-256. Raises TidegateError, and OSError of the local disk.

        List the directory first. If the file is missing, a server with a store responds with 500, and MLflow's client
        retries for minutes.
        """
        what = f"{path} cannot be downloaded"
        try:
            with self._translated(what):
                self._repository._download_file(path, str(to))  # every kind of repository has it
        except IsADirectoryError as error:  # from artifacts in a directory
            raise NotFoundError(what, where=self.where, why=str(error)) from None
        to.chmod(0o644)  # from artifacts in a directory, MLflow copies the mode too
        return hashed(to)

    def upload(self, local: Path, path: str) -> None:
        """Upload a file of the same name atomically. Replaces an existing one."""
        folder, _, name = path.rpartition("/")
        assert name == local.name, "MLflow uses the local file's name"
        longer = local.stat().st_size / SLOWEST_BYTES_PER_SECOND
        with settings(longer), self._translated(f"{path} cannot be uploaded"):
            self._repository.log_artifact(str(local), folder or None)

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a small file, or `limit` + 1 bytes of a larger one. Raises like `download`."""
        with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
            file = Path(scratch, "content")
            self.download(path, file)
            with file.open("rb") as opened:
                return opened.read(limit + 1)

    def write(self, path: str, content: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
            file = Path(scratch, path.rpartition("/")[2])
            file.write_bytes(content)
            self.upload(file, path)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Turn the exceptions of a store's library into TidegateError. OSError of local files passes."""
        try:
            with settings(), translated(what, self.where) if self._served else nullcontext():
                yield
        except (TidegateError, OSError):
            raise
        except ImportError as error:
            what = "the library for artifacts of this kind is not installed"
            do = (
                "install it (boto3, google-cloud-storage or azure-storage-blob), or run MLflow with proxied artifacts "
                "(`mlflow server --serve-artifacts`)"
            )
            raise UsageError(what, where=self.where, why=str(error), do=do) from None
        except Exception as error:  # each store's library has its own exceptions
            raise of_store(error, self.where, what) from None


def _check_server(uri: str, tracking_uri: str, where: str) -> None:
    if _server(uri) != _server(tracking_uri):
        what = "these artifacts are on another server, which must not get the registry's credential"
        do = (
            "find out who made the version before you deploy it. Run MLflow with proxied artifacts "
            "(`mlflow server --serve-artifacts`)"
        )
        raise RefusedError(what, where=where, why=f"the registry is {shown(tracking_uri)}", do=do)


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
