"""Models in a real S3 (MinIO): the files of a load are listed before it, and staged from there."""

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path

import pytest
from tidegate_contracts.eviction import ManagedModel
from tidegate_contracts.manifest import PUBLISHED_MANIFEST, ManifestFile, make_manifest
from tidegate_eviction.staging.copying import StagingError
from tidegate_eviction.staging.sources import RepositoryError
from tidegate_eviction.triton.repository import TritonRepository

from lab.local_plane.object_store import ObjectStore, object_store
from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs.running_policy import MIB, live
from ..rigs.stand_in import StandIn
from .rig import KIB, Rig, files_below, write_model

pytestmark = pytest.mark.anyio
numbers = count()


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with not_run("A REAL S3"), object_store(tmp_path_factory.mktemp("minio")) as running:
        running.make_bucket("models")
        yield running


class Bucket:
    def __init__(self, minio: ObjectStore, root: Path) -> None:
        self.client, self.root = minio.client(), root
        self.path = f"test{next(numbers)}/models"
        self.url = f"s3://{minio.url}/models/{self.path}"

    def upload(self) -> None:
        there = files_below(self.root / "source")
        for path, data in there.items():
            self.client.put_object(Bucket="models", Key=f"{self.path}/{path}", Body=data)
        for each in self.client.list_objects_v2(Bucket="models", Prefix=f"{self.path}/").get("Contents", ()):
            if each["Key"].removeprefix(f"{self.path}/") not in there:
                self.client.delete_object(Bucket="models", Key=each["Key"])


@pytest.fixture
def bucket(minio: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in minio.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "source").mkdir()
    return Bucket(minio, tmp_path)


def rig_of(bucket: Bucket) -> Rig:
    rig = Rig(bucket.root, is_mounted=False)
    rig.repository = TritonRepository(bucket.url)
    return rig


async def test_contents_are_known_before_a_load_as_in_a_directory(bucket: Bucket) -> None:
    for name in "ab":
        write_model(bucket.root, name)
    (bucket.root / "source" / "a" / "3").mkdir()
    (bucket.root / "source" / "a" / "3" / "model.bin").write_bytes(b"third")
    steps = " ".join(f'step {{ model_name: "{each}" }}' for each in "ab")
    (bucket.root / "source" / "both").mkdir()
    (bucket.root / "source" / "both" / "config.pbtxt").write_text(f"ensemble_scheduling {{ {steps} }}")
    bucket.upload()
    bucket.client.put_object(Bucket="models", Key=f"{bucket.path}/both/1/", Body=b"")
    (bucket.root / "source" / "both" / "1").mkdir()
    there, here = TritonRepository(bucket.url), TritonRepository(str(bucket.root / "source"))
    there.check()
    for name, wanted in (("a", ()), ("a", (1,)), ("b", ()), ("both", ())):
        seen, expected = there.look(name, wanted), here.look(name, wanted)
        assert seen is not None
        assert expected is not None
        for what in ("versions", "parts", "estimate_bytes", "problem", "override"):
            assert getattr(seen, what) == getattr(expected, what), (name, what)
    assert there.look("c") is None
    stamps = {wanted: there.look("a", wanted) for wanted in ((), (1,))}
    assert stamps[()] != stamps[1,]


async def test_a_model_is_staged_from_there_and_a_new_content_replaces_it(bucket: Bucket) -> None:
    write_model(bucket.root, "a")
    bucket.upload()
    rig = rig_of(bucket)
    async with rig.running() as stager:
        assert await rig.load("a") > 0
        assert files_below(rig.served / "a") == files_below(bucket.root / "source" / "a")
        assert await rig.load("a") == 0
        write_model(bucket.root, "a", b"new")
        bucket.upload()
        assert await rig.load("a") > 0
        assert files_below(rig.served / "a") == files_below(bucket.root / "source" / "a")
        assert len(stager.copies) == 1


async def test_a_file_that_its_manifest_calls_executable_is_staged_so(bucket: Bucket) -> None:
    write_model(bucket.root, "a")
    source = bucket.root / "source" / "a"
    (source / "1" / "triton_python_backend_stub").write_bytes(b"stub")
    stub, other = (
        ManifestFile(path=f"1/{path.name}", size=path.stat().st_size, sha256=sha256(path.read_bytes()).hexdigest())
        for path in (source / "1" / "triton_python_backend_stub", source / "1" / "model.bin")
    )
    manifest = make_manifest("a", [stub.model_copy(update={"executable": True}), other])
    (source / "1" / PUBLISHED_MANIFEST).write_bytes(manifest.canonical())
    bucket.upload()
    rig = rig_of(bucket)
    async with rig.running():
        await rig.load("a")
        modes = {path.name: path.stat().st_mode & 0o777 for path in (rig.served / "a" / "1").iterdir()}
    assert modes["triton_python_backend_stub"] == 0o755
    assert modes["model.bin"] == 0o644


async def test_a_failed_staging_reports_why(bucket: Bucket, minio: ObjectStore) -> None:
    write_model(bucket.root, "a", size=64 * KIB)
    bucket.upload()
    rig = rig_of(bucket)
    async with rig.running(32 * KIB):
        with pytest.raises(StagingError, match=r"model a cannot be staged: its files need \d+ bytes, .* has 32768"):
            await rig.load("a")
    missing = TritonRepository(f"s3://{minio.url}/nowhere/models")
    with pytest.raises(OSError, match="nowhere"):
        missing.check()
    with pytest.raises((OSError, RepositoryError)):
        missing.look("a")


async def test_of_a_bucket_that_is_not_staged_versions_are_chosen_and_while_it_cannot_be_read_models_are_loaded(
    bucket: Bucket, minio: ObjectStore
) -> None:
    stand_in = StandIn({"a": MIB, "b": MIB})
    models = ManagedModel(name="a", versions=(1,), footprint_bytes=MIB), ManagedModel(name="b", footprint_bytes=MIB)
    async with live(bucket.root, stand_in, repository=f"s3://{minio.url}/late/models", models=models) as policy:
        assert (await policy.acquire("b")).outcome == "granted", "the server may reach it"
        assert (await policy.acquire("a", seconds=1)).outcome != "granted", "which versions it has is not known"
        minio.make_bucket("late")
        for name, version in (("a", 1), ("a", 3), ("b", 1)):
            bucket.client.put_object(Bucket="late", Key=f"models/{name}/{version}/model.bin", Body=b"x")
        await policy.service.look()
        assert (await policy.acquire("a")).outcome == "granted"
        assert json.loads(stand_in.configs["a"])["version_policy"] == {"specific": {"versions": ["1"]}}
        assert policy.footprints.models["a"].stamp != ""
