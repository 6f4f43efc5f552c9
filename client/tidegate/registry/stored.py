"""Artifacts that clients reach by themselves: in S3, Google's or Azure's storage, or in a folder.

Credentials are found as usual: environment variables, a web identity (IRSA), the machine's role, and whatever boto3
knows where it is installed (profiles, SSO).
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions
from obstore.store import LocalStore, ObjectStore, S3Store, from_url
from tidegate_contracts.manifest import is_inside

from ..errors import NotFoundError, RefusedError, TidegateError, UnreachableError, UsageError
from ..hashing import CHUNK_BYTES, chunks_of
from .failures import scrubbed, shown
from .sending import Sending

RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
PART_BYTES = 8 << 20
PARTS = 2
"""Parts of one file under way at a time; 10,000 parts are the most that S3 takes."""
MAX_PARTS = 10_000


class StoredArtifacts:
    """Artifacts below a URI of a store."""

    def __init__(self, uri: str) -> None:
        """Take `s3://bucket/prefix`, `gs://…`, `abfss://…`, `wasbs://…`, `file:///…` or a folder."""
        self.where = shown(uri)
        self._folder = _folder(uri)
        self._store: ObjectStore | None = None
        try:
            if self._folder is None:
                self._store = _store(uri)
        except (exceptions.BaseError, ValueError) as error:
            raise UsageError(
                "artifacts of this kind cannot be reached",
                where=self.where,
                why=scrubbed(str(error)),
                do="have MLflow hand its artifacts through (`mlflow server --serve-artifacts`)",
            ) from None

    def list(self, folder: str) -> tuple[dict[str, int], list[str]]:
        """See Artifacts."""
        with self._translated(f"the folder {folder or '/'} cannot be listed"):
            if (store := self._opened()) is None:
                return {}, []
            found = obstore.list_with_delimiter(store, folder or None)
        return {item["path"]: item["size"] for item in found["objects"]}, list(found["common_prefixes"])

    @contextmanager
    def read(self, path: str) -> Iterator[Iterator[bytes]]:
        """See Artifacts."""
        what = f"{path} cannot be downloaded"
        if self._folder is not None and is_inside(path):  # each way to the library's threads is as long as a small file
            with self._translated(what):
                descriptor = os.open(self._folder / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                yield self._chunks(chunks_of(descriptor), what)
            finally:
                os.close(descriptor)
            return
        with self._translated(what):
            if (store := self._opened()) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            found = obstore.get(store, path)
            stream = found.stream(CHUNK_BYTES) if found.meta["size"] > CHUNK_BYTES else [found.bytes()]
        yield self._chunks(stream, what)

    def write(self, path: str, content: Sending) -> None:
        """See Artifacts."""
        part = max(PART_BYTES, -(-content.size // (MAX_PARTS - 1)))
        with self._translated(f"{path} cannot be uploaded"):
            store = self._opened(make=True)
            assert store is not None
            obstore.put(store, path, content, chunk_size=part, max_concurrency=PARTS)

    def _chunks(self, stream: Any, what: str) -> Iterator[bytes]:
        chunks = iter(stream)
        while True:
            with self._translated(what):
                try:
                    chunk = bytes(next(chunks))
                except StopIteration:
                    return
            yield chunk

    def _opened(self, *, make: bool = False) -> ObjectStore | None:
        """Return the store; None for a folder that is not there, which is made for writing alone."""
        if self._store is None and self._folder is not None and (make or self._folder.is_dir()):
            self._store = LocalStore(self._folder, mkdir=True)
        return self._store

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise NotFoundError(what, where=self.where, why=scrubbed(str(error))) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError) as error:
            raise self._refused(what, error) from None
        except (exceptions.BaseError, OSError) as error:
            if any(
                word in str(error) for word in ("ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "403 Forbidden")
            ):
                raise self._refused(what, error) from None
            raise UnreachableError(
                what, where=self.where, why=scrubbed(str(error)), do="run the same command again: it goes on from here"
            ) from None

    def _refused(self, what: str, error: Exception) -> TidegateError:
        return RefusedError(
            what,
            where=self.where,
            why=scrubbed(str(error)),
            do="renew the credential of the store, or ask for the permission, and run the same command again",
        )


def _store(uri: str) -> ObjectStore:
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return _s3(parts.netloc, parts.path.strip("/"))
    if parts.scheme in ("wasb", "wasbs"):  # MLflow's name for what Azure calls https://<account>.blob.core.windows.net
        container, _, host = parts.netloc.partition("@")
        return from_url(f"https://{host}/{container}{parts.path}", retry_config=RETRY)
    return from_url(uri, retry_config=RETRY)


def _folder(uri: str) -> Path | None:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(uri)


def _s3(bucket: str, prefix: str) -> ObjectStore:
    """Open a bucket as MLflow does: its variable for the endpoint counts, and boto3's credentials do."""
    options: dict[str, Any] = {}
    endpoint = os.environ.get("MLFLOW_S3_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options["endpoint"] = endpoint
        options["client_options"] = {"allow_http": urlsplit(endpoint).scheme == "http"}
    if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_WEB_IDENTITY_TOKEN_FILE" not in os.environ:
        options |= _from_boto3()
    return S3Store(bucket, prefix=prefix or None, retry_config=RETRY, **options)


def _from_boto3() -> dict[str, Any]:
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    session = boto3.Session()
    if session.get_credentials() is None:
        return {}
    region = {"region": session.region_name} if session.region_name else {}
    return {"credential_provider": Boto3CredentialProvider(session), **region}
