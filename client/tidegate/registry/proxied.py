"""Artifacts that MLflow's server hands through (`mlflow-artifacts:`), so that clients have no key to the store.

https://mlflow.org/docs/latest/self-hosting/architecture/artifact-store/ · GET, PUT and listing below
`/api/2.0/mlflow-artifacts/artifacts`. Credentials, certificates, tries and time-outs are MLflow's own settings.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from ..errors import NotFoundError, RefusedError, UnreachableError
from ..hashing import CHUNK_BYTES
from .failures import from_status, shown, translated, unreachable
from .sending import Sending
from .wire import request

SERVICE = "/api/2.0/mlflow-artifacts/artifacts"
AGAIN = (408, 425, 429, 502, 503, 504)
"""Statuses after which MLflow's client asks again for a file: its own but for 500, which is looked into here."""
SLOWEST_BYTES_PER_SECOND = 5e6
"""A server answers an upload when it has passed it on, so that large ones wait longer for the answer."""


class ProxiedArtifacts:
    """Artifacts below a URI that the tracking server serves."""

    def __init__(self, uri: str, tracking_uri: str) -> None:
        """Take `mlflow-artifacts:/path`, `mlflow-artifacts://host/path` or the HTTP address itself.

        Raises RefusedError for another server than the tracking server: whoever makes a version says where its files
        are, and the credential that goes with each request is the registry's.
        """
        from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

        with translated(f"the artifacts at {shown(uri)} cannot be reached", shown(tracking_uri)):
            resolve: Any = MlflowArtifactsRepository.resolve_uri
            whole = uri if uri.startswith("http") else str(resolve(uri, tracking_uri))
        parts = urlsplit(whole)
        prefix, service, below = parts.path.partition(SERVICE)
        self.where = shown(uri)
        if _server(whole) != _server(tracking_uri):
            raise RefusedError(
                "these artifacts are on another server than the registry, which is not sent the registry's credential",
                where=self.where,
                why=f"the registry is {shown(tracking_uri)}",
                do="deploy nothing of it before you know who made the version; have the registry hand its artifacts "
                "through itself (`mlflow server --serve-artifacts`)",
            )
        self._base = urlunsplit((parts.scheme, parts.netloc, prefix, "", ""))
        self._service, self._below = service or parts.path, below.strip("/")

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """See Artifacts."""
        what = f"the folder {folder or '/'} cannot be listed"
        with closing(self._ask("GET", self._service, what, params={"path": self._path(folder)})) as response:
            try:
                found = [(str(item["path"]), bool(item["is_dir"]), item) for item in response.json().get("files", [])]
            except (ValueError, LookupError, TypeError, AttributeError):
                raise UnreachableError(
                    what,
                    where=self.where,
                    why="the answer is not MLflow's",
                    do="look at what stands before the MLflow server, or at MLFLOW_TRACKING_URI",
                ) from None
        files: dict[str, int] = {}
        folders: list[str] = []
        for said, is_folder, item in found:
            name = said.rpartition("/")[2]
            path = f"{folder}/{name}" if folder else name
            if is_folder:
                folders.append(path)
            else:
                files[path] = int(item.get("file_size") or 0)
        return files, folders

    @contextmanager
    def read(self, path: str) -> Iterator[Iterator[bytes]]:
        """See Artifacts."""
        what = f"{path} cannot be downloaded"
        try:
            answer = self._ask("GET", self._address(path), what, stream=True, retry_codes=AGAIN)
        except UnreachableError:
            # With a store behind it, MLflow's server says 500 of a file that is not there.
            if path not in self.list(path.rpartition("/")[0])[0]:
                raise NotFoundError(what, where=self.where, why="it is not in its folder") from None
            raise
        with closing(answer) as response:
            yield self._chunks(response, what)

    def write(self, path: str, content: Sending) -> None:
        """See Artifacts."""
        from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT

        usual: Any = MLFLOW_HTTP_REQUEST_TIMEOUT
        options = {
            "data": content if content.size else b"",  # an empty stream would be sent in chunks
            "extra_headers": {"Content-Type": "application/octet-stream"},
            "timeout": usual.get() + int(content.size / SLOWEST_BYTES_PER_SECOND),
        }
        self._ask("PUT", self._address(path), f"{path} cannot be uploaded", **options).close()

    def _ask(self, method: str, endpoint: str, what: str, **options: Any) -> Any:
        """Return the answer of the server, a `requests.Response`, which is a success."""
        with translated(what, self.where):
            response = request(self._base, endpoint, method, **options)
        if not response.ok:
            with closing(response):
                raise from_status(response.status_code, what, self.where, _message(response))
        return response

    def _chunks(self, response: Any, what: str) -> Iterator[bytes]:
        try:
            yield from response.iter_content(CHUNK_BYTES)
        except OSError as error:  # the connection broke, or ended before the announced length
            raise unreachable(what, self.where, str(error)) from None

    def _path(self, path: str) -> str:
        return "/".join(part for part in (self._below, path) if part)

    def _address(self, path: str) -> str:
        return f"{self._service}/{quote(self._path(path))}"


def _message(response: Any) -> str:
    try:
        said = response.json()
        return str(said.get("message", "")) if isinstance(said, dict) else ""
    except ValueError:
        return ""


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
