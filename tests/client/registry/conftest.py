"""One real MLflow server with a real S3, shared by all tests here. Each kind of artifact access has an experiment."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tidegate.registry import Registry

from lab.local_plane.mlflow import MLflow, mlflow_server
from lab.local_plane.object_store import ObjectStore, object_store
from tests.client.tiers import first_only
from tests.proxy.rigs.pytest_rigs import not_run

from .relay import Relay, relay

ROOT = Path(__file__).resolve().parents[3]
WAYS = ("handed-through", "straight-to-s3", "in-a-folder")
EACH_WAY = pytest.mark.parametrize("way", first_only(*WAYS))
BUCKET = "models"


@dataclass(frozen=True)
class World:
    store: ObjectStore
    server: MLflow
    folder: Path

    def registry(self, way: str = WAYS[0], uri: str | None = None) -> Registry:
        os.environ["MLFLOW_EXPERIMENT_NAME"] = way
        return Registry(uri or self.server.uri)

    def keys(self, part: str) -> list[str]:
        pages = self.store.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [item["Key"] for page in pages for item in page.get("Contents", []) if part in item["Key"]]

    def client(self) -> Any:
        from mlflow import MlflowClient  # takes seconds to import

        return MlflowClient(self.server.uri)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("registry")
    with not_run("A REAL S3"), object_store(folder / "s3") as store:
        bucket = store.make_bucket(BUCKET)
        with mlflow_server(folder / "mlflow", f"{bucket}/handed", store.variables) as server:
            world = World(store, server, folder)
            world.client().create_experiment(WAYS[1], f"{bucket}/straight")
            world.client().create_experiment(WAYS[2], (folder / "artifacts").as_uri())
            yield world


@pytest.fixture(autouse=True)
def client_variables(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Shorten MLflow's retries, set the key for direct access to S3, and let programs find our packages."""
    ours = [str(Path(path).resolve()) for path in sys.path if Path(path).resolve().is_relative_to(ROOT)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(ours))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", WAYS[0])
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    if "world" in request.fixturenames:
        world: World = request.getfixturevalue("world")
        for name, value in world.store.variables.items():
            monkeypatch.setenv(name, value)


@pytest.fixture
def before(world: World) -> Iterator[Relay]:
    with relay(world.server.uri) as running:
        yield running
