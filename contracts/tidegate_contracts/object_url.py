"""The URL of a repository in an object store, as Triton writes it."""

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
    """Where in which object store a repository lies."""

    scheme: str  # `s3`, `gs` or `as`.
    bucket: str
    folders: tuple[str, ...]  # One below the other; none for a whole bucket.
    endpoint: str = ""  # Of an S3 that is not Amazon's.
    account: str = ""  # Of Azure.


def parsed(url: str) -> ObjectUrl:
    """Return what a URL says; raises ValueError for what is none of `FORMS`."""
    scheme, _, rest = url.partition("://")
    endpoint = ""
    if (found := _ENDPOINT.fullmatch(rest)) and scheme == "s3":
        endpoint, rest = (found["scheme"] or "http://") + found["host"], found["path"]
    parts = [part for part in rest.split("/") if part]
    account = parts.pop(0).partition(".")[0] if scheme == "as" and parts else ""
    if scheme not in ("s3", "gs", "as") or not parts or "@" in rest or urlsplit(f"//{rest}").query:
        raise ValueError(f"that is no URL of a repository in an object store: write {FORMS}")
    return ObjectUrl(scheme, parts[0], tuple(parts[1:]), endpoint, account)


def open_store(place: ObjectUrl, folders: tuple[str, ...], **options: Any) -> Any:
    """Return obstore's client for some folders of a repository; `options` are obstore's own. It sends no request."""
    from obstore.store import AzureStore, GCSStore, S3Store  # some MB, of no use for those who only read URLs

    options["prefix"] = "/".join(folders) or None
    if place.scheme == "gs":
        return GCSStore(place.bucket, **options)
    if place.scheme == "as":
        return AzureStore(place.bucket, account_name=place.account, **options)
    plain = (place.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http://")
    options |= {"endpoint": place.endpoint} if place.endpoint else {}
    return S3Store(place.bucket, client_options={"allow_http": True} if plain else None, **options)
