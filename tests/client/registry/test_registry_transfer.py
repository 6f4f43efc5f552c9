import errno
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidegate import errors
from tidegate.hashing import hashed
from tidegate.registry import RegisteredVersion, Registry, transfer
from tidegate.registry.artifacts import Artifacts
from tidegate.registry.transfer import PARTIAL
from tidegate_contracts.manifest import Manifest

from tests.client.tiers import first_only

from .conftest import BUCKET, World
from .entries import contents, entry, noise, registered
from .relay import Answer, Relay

THOROUGH = pytest.mark.thorough
SECRET = "very-s3cret-token"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {f"1/{number}.bin": noise(number, 200_000) for number in range(10)}
    return entry(tmp_path_factory.mktemp("entries"), "hurt", files)


@pytest.fixture
def version(world: World, root: Path) -> RegisteredVersion:
    return registered(world.registry(), root)


@dataclass
class Fetch:
    registry: Registry
    version: RegisteredVersion
    root: Path
    folder: Path
    before: Relay

    def __call__(self, progress: Callable[[int], None] = lambda _bytes: None) -> Manifest:
        return self.registry.fetch(self.version, self.folder, progress)

    @property
    def is_whole(self) -> bool:
        return contents(self.folder) == contents(self.root)


@pytest.fixture
def fetch(
    world: World, before: Relay, version: RegisteredVersion, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Fetch:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    return Fetch(world.registry(uri=before.uri), version, root, tmp_path / "fetched", before)


@pytest.fixture
def own_version(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> RegisteredVersion:
    """A version that the test may damage."""
    name = f"spoilt-{hashlib.sha256(request.node.name.encode()).hexdigest()[:8]}"
    return registered(world.registry(), entry(tmp_path, name, {"1/data": noise(3, 50_000)}))


def put(world: World, version: RegisteredVersion, path: str, content: bytes) -> None:
    key = f"handed{version.source.partition('mlflow-artifacts:')[2]}/{path}"
    world.store.client().put_object(Bucket=BUCKET, Key=key, Body=content)


def only(part: str, change: Callable[[Answer], None]) -> Callable[[str, str, Answer], None]:
    return lambda _method, path, answer: change(answer) if part in path else None


def cut(answer: Answer) -> None:
    answer.cut = len(answer.body) // 2


def shorter(answer: Answer) -> None:
    answer.body = answer.body[:-1]


def longer(answer: Answer) -> None:
    answer.body += b"more"


def flipped(answer: Answer) -> None:
    answer.body = bytes([answer.body[0] ^ 1]) + answer.body[1:]


def status(code: int, body: bytes = b"", content_type: str = "text/plain") -> Callable[[Answer], None]:
    def change(answer: Answer) -> None:
        answer.status, answer.body, answer.headers = code, body, [("Content-Type", content_type)]

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        pytest.param(cut, errors.UnreachableError, "1/3.bin cannot be downloaded", id="the connection breaks"),
        pytest.param(shorter, errors.IntegrityError, "after 199999 of 200000 bytes", id="truncated", marks=THOROUGH),
        pytest.param(longer, errors.IntegrityError, "larger than what was registered", id="it does not end"),
        pytest.param(flipped, errors.IntegrityError, "its SHA-256 is", id="a bit is another one"),
        pytest.param(status(404), errors.IntegrityError, "missing in the artifact store", id="missing", marks=THOROUGH),
        pytest.param(status(401), errors.RefusedError, "missing, wrong or expired", id="the token has expired"),
        pytest.param(status(403), errors.RefusedError, "get the permission", id="forbidden", marks=THOROUGH),
        pytest.param(status(503), errors.BusyError, "try again later", id="the server is busy", marks=THOROUGH),
        pytest.param(status(500), errors.UnreachableError, "HTTP 500", id="the server fails", marks=THOROUGH),
    ],
)  # fmt: skip
def test_a_file_that_does_not_come_as_it_was_registered_is_refused_and_the_next_run_goes_on(
    fetch: Fetch, change: Callable[[Answer], None], error: type[errors.TidegateError], words: str
) -> None:
    fetch.before.fault = only("entry/1/3.bin", change)
    with pytest.raises(error, match=words) as caught:
        fetch()
    assert SECRET not in str(caught.value)
    assert caught.value.where.startswith("mlflow-artifacts:")
    there = {path: content for path, content in contents(fetch.folder).items() if not path.startswith(PARTIAL)}
    assert "1/3.bin" not in there
    assert there.items() <= contents(fetch.root).items()
    fetch.before.fault = None
    fetch.before.requests.clear()
    fetch()
    assert fetch.is_whole
    requested = {path.rpartition("/entry/")[2] for path in fetch.before.sent("GET", "/artifacts/model/entry/")}
    assert requested.isdisjoint(there)  # complete files are not requested again


def test_a_connection_that_breaks_once_is_no_failure(fetch: Fetch) -> None:
    broken: list[str] = []

    def once(_method: str, path: str, answer: Answer) -> None:
        if "entry/1/5.bin" in path and not broken:
            broken.append(path)
            cut(answer)

    fetch.before.fault = once
    got: list[int] = []
    manifest = fetch(got.append)
    assert broken
    assert fetch.is_whole
    assert sum(got) == manifest.size  # a file that was sent twice counts once


def test_an_expired_token_is_reported_for_any_response_of_the_gateway(world: World, fetch: Fetch) -> None:
    """Gateways respond with their JSON, or with a login page."""
    before, registry = fetch.before, fetch.registry
    for body, kind in ((b'{"error": "expired"}', "application/json"), (b"<html>", "text/html"), (b"", "text/plain")):
        before.fault = only("/", status(401, body, kind))
        for ask in (
            lambda: registry.version("hurt", 1),
            lambda: registry.manifest(fetch.version),
            lambda: registry.versions("hurt"),
            lambda: world.registry(uri=before.uri),
        ):
            with pytest.raises(errors.RefusedError, match="missing, wrong or expired") as caught:
                ask()
            assert SECRET not in str(caught.value)
    before.fault = only("/", status(200, b"<html>please sign in", "text/html"))
    with pytest.raises(errors.TidegateError, match="not an MLflow server"):
        world.registry(uri=before.uri)


def test_an_incomplete_listing_fetches_nothing_and_an_invalid_one_is_reported(fetch: Fetch) -> None:
    def short(answer: Answer) -> None:
        message = json.loads(answer.body)
        message["files"] = message.get("files", [])[:1]
        answer.body = json.dumps(message).encode()

    fetch.before.fault = only("artifacts?path=", short)
    with pytest.raises(errors.IntegrityError, match="is missing in the artifact store"):
        fetch()
    for body in (b"<html>", b"[]", b'{"files": [1]}', b'{"files": [{"path": "x"}]}'):
        fetch.before.fault = only("artifacts?path=", status(200, body, "application/json"))
        with pytest.raises(errors.UnreachableError, match="the response is not MLflow's"):
            fetch()


@pytest.mark.parametrize("path", first_only("entry/1/more.py", "entry/2/model.py", "entry/other"))
def test_files_beyond_the_manifest_are_refused(
    world: World, own_version: RegisteredVersion, tmp_path: Path, path: str
) -> None:
    put(world, own_version, path, b"print('I was not registered')")
    with pytest.raises(errors.IntegrityError, match="not in its manifest") as caught:
        world.registry().fetch(own_version, tmp_path / "fetched")
    assert path.removeprefix("entry/")[:2] in caught.value.why
    assert not [*(tmp_path / "fetched").rglob("*")]


def test_a_forged_manifest_is_refused_at_once(world: World, own_version: RegisteredVersion, tmp_path: Path) -> None:
    """Users who can write to the registry and its store can forge both. Even then nothing is written elsewhere."""
    registry = world.registry()
    message = json.loads(registry.manifest(own_version).canonical())
    changes: list[tuple[dict[str, object], str]] = [({"model": "other"}, "of model 'other'")]
    for path in ("../climbed", "/etc/climbed", "1/../../climbed", "a//b", "1/\u0000x"):
        changes.append(({"files": [{"path": path, "size": 1, "sha256": "0" * 64}]}, "the manifest cannot be read"))
    for change, words in changes:
        content = json.dumps(message | change, sort_keys=True, separators=(",", ":")).encode()
        put(world, own_version, "manifest.json", content)
        with pytest.raises(errors.IntegrityError, match=r"manifest\.json differs from what was registered"):
            registry.fetch(own_version, tmp_path / "deep" / "fetched")
        fits = own_version.model_copy(update={"manifest_sha256": hashlib.sha256(content).hexdigest()})
        with pytest.raises(errors.IntegrityError, match=words):
            registry.fetch(fits, tmp_path / "deep" / "fetched")
    assert list(tmp_path.rglob("*climbed*")) == []
    assert not (tmp_path / "deep").exists()
    forged = own_version.model_copy(update={"tags": own_version.tags | {"tidegate.golden.sha256": "0" * 64}})
    with pytest.raises(errors.IntegrityError, match=r"golden-0000000000000000\.json is missing in the artifact store"):
        registry.golden(forged)


def test_damaged_files_are_fetched_again(
    world: World, version: RegisteredVersion, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "config.pbtxt").symlink_to(tmp_path / "victim")
    world.registry().fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(root)
    assert (tmp_path / "victim").read_bytes() == b"mine"
    (tmp_path / "fetched/1/2.bin").write_bytes(noise(99, 200_000))
    (tmp_path / "fetched/1/4.bin").unlink()
    (tmp_path / "fetched/1/6.bin").write_bytes(b"")
    read: dict[Path, tuple[int, str]] = {}
    monkeypatch.setattr(transfer, "hashed", lambda path: read.setdefault(path, hashed(path)))
    world.registry().fetch(version, tmp_path / "fetched")
    assert contents(tmp_path / "fetched") == contents(root)
    assert {path.name for path in read} & {"2.bin", "6.bin"} == {"2.bin"}  # the other's size shows the fault
    (tmp_path / "second").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "second" / "1").symlink_to(tmp_path / "outside")
    with pytest.raises(errors.IntegrityError, match="symbolic link"):
        world.registry().fetch(version, tmp_path / "second")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "free space"), (errno.ESTALE, "network share"), (errno.EACCES, "check the permissions")],
)
def test_errors_of_the_disk_have_a_remedy(
    world: World, version: RegisteredVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    download = Artifacts.download

    def refuse(artifacts: Artifacts, path: str, to: Path) -> tuple[int, str]:
        if path.startswith("entry/"):
            raise OSError(code, os.strerror(code))
        return download(artifacts, path, to)

    monkeypatch.setattr(Artifacts, "download", refuse)
    with pytest.raises(errors.UnfinishedError, match=words):
        world.registry().fetch(version, tmp_path / "fetched")


def test_a_failed_store_a_refusal_and_a_missing_file_are_different_errors(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Direct access to S3: a wrong key, an invalid token, a missing file, no server."""
    import boto3
    from mlflow.store.artifact import s3_artifact_repo

    def forget() -> None:
        boto3.setup_default_session()  # as in separate processes
        s3_artifact_repo._cached_get_s3_client.cache_clear()

    def opened() -> Artifacts:
        forget()
        return Artifacts(f"s3://{BUCKET}/straight", world.server.uri)

    request.addfinalizer(forget)
    with pytest.raises(errors.NotFoundError):
        opened().download("not/there", tmp_path / "there")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(errors.RefusedError, match="renew the credentials of the store") as caught:
        opened().list("")
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", world.store.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "expired")
    with pytest.raises(errors.RefusedError):
        opened().list("")
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(errors.UnreachableError, match="run the same command again"):
        opened().list("")


def test_the_first_failure_cancels_transfers_that_have_not_begun(world: World, before: Relay, tmp_path: Path) -> None:
    registry = world.registry(uri=before.uri)
    many = registered(registry, entry(tmp_path, "many", {f"1/{number:03}": b"x" for number in range(120)}))
    before.requests.clear()
    before.fault = only("/entry/1/000", status(403))
    with pytest.raises(errors.RefusedError):
        registry.fetch(many, tmp_path / "fetched")
    assert len(before.sent("GET", "/artifacts/model/entry/")) < 60
