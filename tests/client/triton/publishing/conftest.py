"""Repositories in a dataset's directory, and in a real S3 (MinIO)."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from lab.local_plane.object_store import ObjectStore, object_store
from lab.local_plane.process import CannotBeHadError

BUCKET = "models"
numbers = count()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dataset" / "models").mkdir(parents=True)
    return tmp_path / "dataset" / "models"


@pytest.fixture(scope="package")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    try:
        with object_store(tmp_path_factory.mktemp("minio")) as running:
            running.make_bucket(BUCKET)
            yield running
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: THERE IS NO S3 HERE ({error}), so no test used a repository in an object store.")


@pytest.fixture
def url(minio: ObjectStore, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new repository. Credentials come from the environment, as for AWS's tools."""
    cache = {"TIDEGATE_CACHE": str(tmp_path_factory.mktemp("cache"))}
    for name, value in (minio.variables | cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    return f"s3://{BUCKET}/test{next(numbers)}/models"


@pytest.fixture(params=["root", "url"], ids=["folder", "S3"])
def where(request: pytest.FixtureRequest) -> Path | str:
    place: Path | str = request.getfixturevalue(request.param)
    return place
