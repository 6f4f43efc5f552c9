"""URLs of repositories in object stores, as Triton writes them."""

import os
import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

FORMS: Final = (
    "s3://bucket/folder, s3://https://host:port/bucket/folder, gs://bucket/folder or as://account/container/folder"
)
_ENDPOINT = re.compile(r"(?P<scheme>https?://)?(?P<host>[^/]+:\d+)/(?P<path>.*)")


@dataclass(frozen=True)
class ObjectUrl:
    """The place of a repository in an object store."""

    scheme: str  # `s3`, `gs` or `as`.
    bucket: str
    folders: tuple[str, ...]  # Nested, from the root. Empty for a whole bucket.
    endpoint: str = ""  # Of an S3 store outside Amazon.
    account: str = ""  # Of Azure.


def parsed(url: str) -> ObjectUrl:
    """Return the parts of a URL. Raises ValueError if it has none of the `FORMS`."""
    scheme, _, rest = url.partition("://")
    endpoint = ""
    if (found := _ENDPOINT.fullmatch(rest)) and scheme == "s3":
        endpoint, rest = (found["scheme"] or "http://") + found["host"], found["path"]
    parts = [part for part in rest.split("/") if part]
    account = parts.pop(0).partition(".")[0] if scheme == "as" and parts else ""
    if scheme not in ("s3", "gs", "as") or not parts or "@" in rest or urlsplit(f"//{rest}").query:
        raise ValueError(f"this is not the URL of a repository in an object store. Use {FORMS}")
    return ObjectUrl(scheme, parts[0], tuple(parts[1:]), endpoint, account)


def open_store(place: ObjectUrl, folders: tuple[str, ...], **options: Any) -> Any:
    """Return obstore's client for some folders of a repository, with obstore's own `options`. It sends no request."""
    from obstore.store import AzureStore, GCSStore, S3Store  # some MB, which callers that only parse URLs do not need

    options["prefix"] = "/".join(folders) or None
    if place.scheme == "gs":
        return GCSStore(place.bucket, **options)
    if place.scheme == "as":
        return AzureStore(place.bucket, account_name=place.account, **options)
    plain = (place.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://")
    options |= {"endpoint": place.endpoint} if place.endpoint else {}
    return S3Store(place.bucket, client_options={"allow_http": True} if plain else None, **options)
