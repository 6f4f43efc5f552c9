import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.eviction import Staging
from tidegate_eviction.staging.stager import MODELS

from lab.local_plane.object_store import object_store
from lab.local_plane.policy import policy, triton_options
from lab.local_plane.triton import triton
from tests.proxy.rigs.pytest_rigs import not_run

from ..rigs import zoo
from ..rigs.caller import infer, until
from .test_real_policy import MIB, Plane, write

ROOM = 200 * MIB


@contextmanager
def staged_plane(root: Path, *names: str, size_bytes: int, **changes: Any) -> Iterator[Plane]:
    (root / "tier" / MODELS).mkdir(parents=True)
    write(root, *names, staging=Staging(folder=str(root / "tier"), size_bytes=size_bytes), **changes)
    with (
        not_run("A REAL TRITON"),
        triton(root / "triton", root / "tier" / MODELS, options=triton_options(root)) as server,
        policy(root, server, options=["--drain-seconds", "0"]) as made,
    ):
        yield Plane(root, server, made)


def with_weights(root: Path, *names: str) -> None:
    (root / "models").mkdir()
    for name in names:
        zoo.model(root / "models", name, 20)
        (root / "models" / name / "1" / "weights.bin").write_bytes(os.urandom(4 * MIB))


def test_models_and_ensembles_are_loaded_from_staged_files(tmp_path: Path) -> None:
    with_weights(tmp_path, "a", "b")
    zoo.ensemble(tmp_path / "models", "both", "a", "b")
    with staged_plane(tmp_path, "a", "b", "both", size_bytes=ROOM) as plane:
        holder = plane.holder
        assert holder.acquire("a")["outcome"] == "granted"
        assert infer(plane.triton.http, "a", 5) == 5
        assert (tmp_path / "tier" / MODELS / "a").resolve().is_relative_to(tmp_path / "tier" / "files")
        holder.release("a")
        assert holder.acquire("both")["outcome"] == "granted"
        assert infer(plane.triton.http, "both", 9) == 9
        holder.release("both")


def test_a_resident_model_whose_files_had_to_go_answers_and_is_unloaded_and_loaded_like_any_other(
    tmp_path: Path,
) -> None:
    with_weights(tmp_path, "a", "b")
    with staged_plane(tmp_path, "a", "b", size_bytes=5 * MIB) as plane:
        holder = plane.holder
        for name in "ab":
            assert holder.acquire(name)["outcome"] == "granted"
        assert not (tmp_path / "tier" / MODELS / "a").resolve().is_relative_to(tmp_path / "tier" / "files")
        assert [infer(plane.triton.http, name) for name in "ab"] == [7, 7]
        # As for a source that Triton cannot read.
        plain = tmp_path / "tier" / MODELS / "a"
        plain.unlink()
        plain.symlink_to("../empty")
        assert infer(plane.triton.http, "a") == 7
        write(tmp_path, "b", staging=Staging(folder=str(tmp_path / "tier"), size_bytes=5 * MIB))
        holder.release("a")
        until(lambda: all(each.model != "a" for each in holder.listing().models))
        write(tmp_path, "a", "b", staging=Staging(folder=str(tmp_path / "tier"), size_bytes=5 * MIB))
        until(lambda: any(each.model == "a" for each in holder.listing().models))
        assert holder.acquire("a")["outcome"] == "granted"
        assert infer(plane.triton.http, "a", 3) == 3


def size_of(folder: Path) -> int:
    """Return the bytes below a directory. Files that vanish meanwhile count as 0."""
    found = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += os.lstat(Path(where, name)).st_size
    return found


def written(process: int) -> int:
    text = Path(f"/proc/{process}/io").read_text("ascii")
    return int(text.split("wchar: ")[1].split()[0])


def test_a_bucket_is_served_through_a_tier_of_one_model_and_nothing_is_copied_to_scratch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_weights(tmp_path, "a", "b")
    with not_run("A REAL S3"), object_store(tmp_path / "minio") as store:
        store.make_bucket("bucket")
        for file in sorted((tmp_path / "models").rglob("*")):
            if file.is_file():
                key = f"models/{file.relative_to(tmp_path / 'models')}"
                store.client().put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        monkeypatch.setenv("TMPDIR", str(scratch))
        url = f"s3://{store.url}/bucket/models"
        with staged_plane(tmp_path, "a", "b", size_bytes=5 * MIB, repository=url) as plane:
            for name in "aba":
                assert plane.holder.acquire(name)["outcome"] == "granted"
                assert infer(plane.triton.http, name, 5) == 5
                plane.holder.release(name)
                assert size_of(tmp_path / "tier") <= 5 * MIB
            assert infer(plane.triton.http, "b") == 7
            assert plane.holder.listed("a").footprint_from == "measured"
            ours, theirs = written(plane.triton.process.pid), written(plane.policy.process.pid)
            assert size_of(scratch) < MIB
            assert ours < 4 * MIB, "Triton copies no model anywhere"
            assert theirs < 13 * MIB, "and the policy, each once for each load, into the tier"
