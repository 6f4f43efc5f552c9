"""Files near a real Triton: it loads what is staged, and holds what it has loaded whatever becomes of the files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.eviction import Staging
from tidegate_eviction.staging.tier import MODELS

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
    """Run a Triton over what its policy stages of the repository below `root`."""
    (root / "tier" / MODELS).mkdir(parents=True)
    write(root, *names, staging=Staging(folder=str(root / "tier"), size_bytes=size_bytes), **changes)
    with (
        not_run("A REAL TRITON"),
        triton(root / "triton", root / "tier" / MODELS, options=triton_options(root)) as server,
        policy(root, server, options=["--drain-seconds", "0"]) as made,
    ):
        yield Plane(root, server, made)


def with_weights(root: Path, *names: str, mib: int = 4) -> None:
    """Write models with files of so many MiB beside their code."""
    (root / "models").mkdir()
    for name in names:
        zoo.model(root / "models", name, 20)
        (root / "models" / name / "1" / "weights.bin").write_bytes(os.urandom(mib * MIB))


def test_models_and_ensembles_are_loaded_from_what_is_staged(tmp_path: Path) -> None:
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
        # As it is where the source is no folder that Triton could read.
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


@pytest.mark.thorough
def test_a_bucket_is_served_through_a_tier_of_one_model_and_triton_never_asks_the_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_weights(tmp_path, "a", "b", "c")
    with not_run("A REAL S3"), object_store(tmp_path / "minio") as store:
        store.make_bucket("bucket")
        for file in sorted((tmp_path / "models").rglob("*")):
            if file.is_file():
                key = f"models/{file.relative_to(tmp_path / 'models')}"
                store.client().put_object(Bucket="bucket", Key=key, Body=file.read_bytes())
        for name, value in store.variables.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{store.url}/bucket/models"
        with staged_plane(tmp_path, "a", "b", "c", size_bytes=5 * MIB, repository=url) as plane:
            for name in "abcab":
                assert plane.holder.acquire(name)["outcome"] == "granted"
                assert infer(plane.triton.http, name, 5) == 5
                plane.holder.release(name)
            assert infer(plane.triton.http, "a") == 7
            assert plane.holder.listed("a").footprint_from == "measured"
