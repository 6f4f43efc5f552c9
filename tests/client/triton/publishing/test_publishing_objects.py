"""A repository in a real S3 (MinIO): the configuration is last, so a stopped publisher leaves the old or the new."""

import os
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tidegate import errors
from tidegate.publishing import Repository, steps
from tidegate.publishing.stores import ObjectStore as Store
from tidegate.triton.publishing.config import read_published

from tests.client.triton.publishing.opening import open_repository

from .conftest import BUCKET
from .entries import Entry, config, content, entry, publish

ONE = entry(1)
OF_LEASES = ("put lease-", "put free-", "put clock-")


@pytest.fixture
def repository(url: str) -> Repository:
    return open_repository(url)


def test_a_new_model_is_closed_until_all_of_it_is_there(url: str, repository: Repository) -> None:
    seen = []
    steps.watch(
        lambda when, step: seen.append((when, step, repository.config("m"))) if step.startswith("put ") else None
    )
    try:
        publish(url, ONE, 1, prod=1)
    finally:
        steps.watch()
    files = [(step, text) for _, step, text in seen if not step.startswith((*OF_LEASES, "put config.pbtxt"))]
    assert len(files) >= 2 * 4
    assert all(text is not None and read_published(text).served == () for _, text in files)
    assert repository.config("m") == config(ONE, 1, [1], prod=1)
    assert not any(Path(os.environ["TIDEGATE_CACHE"]).rglob("data"))  # nothing staged is left


@pytest.mark.parametrize("of", [ONE, entry(2)], ids=["a new model", "a second version"])
def test_a_stop_after_any_put_leaves_the_old_or_the_new_and_the_next_run_completes(url: str, of: Entry) -> None:
    number = 1 if of is ONE else 2
    served, manifests = list(range(1, number + 1)), {1: ONE.manifest, number: of.manifest}
    for place in count():
        where = f"{url}/{place}/models"
        repository, work = open_repository(where), partial(publish, where, of, number, served, prod=1)
        if number == 2:
            publish(where, ONE, 1, prod=1)
        before = content(repository)
        if not stopped(work, place):
            break
        there = content(repository)
        assert all(there[path] == data for path, data in before.items() if path.startswith("1/"))
        if (text := repository.config("m")) is not None:
            assert all(repository.differences("m", each, manifests[each]) == [] for each in read_published(text).served)
            assert text in (before.get("config.pbtxt", b"").decode(), config(of, number, served, prod=1)) or (
                read_published(text).served == ()
            )
        work()
        assert repository.strays("m", manifests) == []
        assert repository.config("m") == config(of, number, served, prod=1)
    assert place > 3


def stopped(work: Callable[[], object], place: int) -> bool:
    """Stop at the n-th put, not counting the lease's. Return False if the work ended before."""
    left = iter(range(place, -1, -1))

    def stop(when: str, step: str) -> None:
        if when == "after" and step.startswith("put ") and not step.startswith(OF_LEASES) and next(left, None) == 0:
            raise SystemExit

    steps.watch(stop)
    try:
        work()
    except SystemExit:
        return True
    finally:
        steps.watch()
    return False


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("AWS_SECRET_ACCESS_KEY", "hunter2-is-wrong", errors.RefusedError, "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "nobody-knows-me", errors.RefusedError, "InvalidAccessKeyId"),
        ("AWS_SESSION_TOKEN", "expired-or-stolen", errors.TidegateError, "InvalidToken"),
    ],
)
def test_wrong_credentials_are_reported_without_showing_any(
    url: str, name: str, value: str, kind: type[errors.TidegateError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(kind, match=message) as caught:
        open_repository(url).models()
    secrets = [os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_ACCESS_KEY_ID"], value]
    assert not any(secret in str(caught.value) for secret in secrets)


def test_a_missing_bucket_or_store_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.UnreachableError, match="NoSuchBucket"):
        open_repository(url.replace(BUCKET, "no-such-bucket", 1)).models()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(errors.UnreachableError, match="check that the bucket exists"):
        open_repository(url).models()


def test_the_urls_are_those_that_triton_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for where in ("s3://bucket", "s3://bucket/some", "s3://https://minio.example:9000/bucket/some", "s3://minio:9000/b",
                  "gs://bucket/some", "as://account/container"):  # fmt: skip
        assert Store(f"{where}/folder").root == Store(f"{where}/folder/").root == "folder"
    for other in ("s3://bucket", "s3://", "http://bucket/folder", "s3://key:secret@bucket/folder",
                  "as://account/container", "s3://b/f?x=1"):  # fmt: skip
        with pytest.raises(errors.UsageError) as caught:
            Store(other)
        assert "secret" not in str(caught.value)
