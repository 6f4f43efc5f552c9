"""The object stores that Triton reads repositories from: their URLs, and what of them this package uses.

Credentials are those of the environment, as each cloud's own tools find them (for AWS: keys, IRSA, the instance's).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from ...errors import NotFoundError, UsageError
from ...failures import of_store
from . import steps

Tag = Any
"""What identifies one state of an object: obstore's UpdateVersion."""
_PART: Final = 8 << 20
_RETRY: Final[Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=30)}
"""Each request: a lease must not wait for longer than it lasts."""
_ENDPOINT = re.compile(r"(?P<scheme>https?://)?(?P<host>[^/]+:\d+)/(?P<path>.*)")
_FORMS = "s3://bucket/folder, s3://https://host:port/bucket/folder, gs://bucket/folder or as://account/container/folder"


class TakenError(Exception):
    """An object is there already, or is no more what it was."""


class ObjectStore:
    """The parent of a repository's folder in an object store."""

    def __init__(self, url: str) -> None:
        """Open it; raises UsageError for what is no URL of a repository."""
        self.where = url
        scheme, _, rest = url.partition("://")
        options: dict[str, Any] = {}
        if (found := _ENDPOINT.fullmatch(rest)) and scheme == "s3":
            options["endpoint"] = (found["scheme"] or "http://") + found["host"]
            rest = found["path"]
        parts = [part for part in rest.split("/") if part]
        account = [parts.pop(0)] if scheme == "as" and parts else []
        if scheme not in ("s3", "gs", "as") or not parts or "@" in rest or urlsplit(f"//{rest}").query:
            raise UsageError("that is no URL of a repository in an object store", do=f"write {_FORMS}")
        bucket, *folders = parts
        if not folders:
            why = (
                "what is staged and locked lies beside the repository, and Triton takes every folder in it for a model"
            )
            raise UsageError("the repository is a whole bucket", where=url, why=why, do=f"give it a folder: {_FORMS}")
        self.root = folders[-1]
        """Name of the repository's folder."""
        prefix = "/".join(folders[:-1]) or None
        if scheme == "gs":
            self._store: Any = GCSStore(bucket, prefix=prefix, retry_config=_RETRY)
        elif scheme == "as":
            self._store = AzureStore(
                bucket, account_name=account[0].partition(".")[0], prefix=prefix, retry_config=_RETRY
            )
        else:
            endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
            plain = {"allow_http": True} if endpoint.startswith("http://") else {}
            self._store = S3Store(bucket, prefix=prefix, client_options=plain or None, retry_config=_RETRY, **options)  # type: ignore[arg-type]

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders below a path."""
        with self._explained():
            found = obstore.list_with_delimiter(self._store, path)["common_prefixes"]
            return sorted(each.rstrip("/").rpartition("/")[2] for each in found)

    def sizes(self, path: str) -> dict[str, int]:
        """Return every object below a path, by its own path below that, with its size in bytes."""
        with self._explained():
            pages = obstore.list(self._store, f"{path}/")
            return {each["path"].removeprefix(f"{path}/"): each["size"] for page in pages for each in page}

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content of an object; raises NotFoundError."""
        with self._explained():
            for chunk in obstore.get(self._store, path).stream(min_chunk_size=_PART):
                yield bytes(chunk)

    def read(self, path: str) -> tuple[bytes, Tag, float]:
        """Return the content of a small object, its state, and the store's own time (seconds) of it."""
        with self._explained():
            found = obstore.get(self._store, path)
            meta = found.meta
            return bytes(found.bytes()), _tag(meta), meta["last_modified"].timestamp()

    def put(self, path: str, data: bytes | Path, mode: "Literal['create', 'overwrite'] | Tag" = "overwrite") -> Tag:
        """Write an object whole, and return its state; raises TakenError where the mode does not allow it."""
        with self._explained(), steps.step(f"put {path.rpartition('/')[2]}"):
            try:
                return _tag(obstore.put(self._store, path, data, mode=mode, chunk_size=_PART))
            except (AlreadyExistsError, PreconditionError):
                raise TakenError(path) from None

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, at once for whoever looks."""
        with self._explained(), steps.step(f"copy to {target.rpartition('/')[2]}"):
            obstore.copy(self._store, source, target)

    def delete(self, path: str) -> None:
        """Delete an object; nothing where there is none."""
        with self._explained(), steps.step(f"delete {path.rpartition('/')[2]}"):
            obstore.delete(self._store, path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("there is no such object", where=self.where) from None
        except BaseError as error:
            raise of_store(error, self.where) from None


def _tag(said: Any) -> Tag:
    """Return what a store tells of an object's state: none of it may be None when it is given back."""
    return {name: said[name] for name in ("e_tag", "version") if said.get(name) is not None}
