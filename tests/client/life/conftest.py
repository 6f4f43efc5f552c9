"""Real parts of a model's life: an MLflow server, and dev and prod, each with Tritons, a policy and a proxy."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidegate import environments
from tidegate.calling.proxy import ProxyClient
from tidegate.life import ready
from tidegate.life.context import Context
from tidegate.registry import Registry
from tidegate_contracts.environments import Promotion
from tidegate_contracts.eviction import Tuning
from tidegate_contracts.routing import Model

from lab.local_plane import environment as local
from lab.local_plane.mlflow import mlflow_server
from lab.local_plane.object_store import object_store
from tests.client.clock import Clock
from tests.proxy.rigs.pytest_rigs import not_run

from .entries import golden, write_entry
from .papers import Life

VISITOR = "visitor"
BUCKET = "artifacts"
QUICK = Tuning(failure_backoff_seconds=0.5)
"""Shortens the pauses between the tries of a load that fails."""


@dataclass
class World:
    dev: local.LocalEnvironment
    prod: local.LocalEnvironment

    def context(self, wait_seconds: float = 60) -> Context:
        return Context(environments.load(), Registry(), wait_seconds=wait_seconds)

    def client(self, of: local.LocalEnvironment) -> ProxyClient:
        return ProxyClient(of.url)

    def register(self, name: str, factor: int, folder: Path, expected: int | None = None, **more: str | int) -> int:
        entry = write_entry(folder / str(factor) / name, factor, **more)  # type: ignore[arg-type]
        request = golden(expected or factor)
        return self.context().registry.register(entry, registered_by="anna", golden=request).number


def model(name: str, server: str = local.PRELOAD, alias: str | None = "champion") -> Model:
    return Model(name=name, server=server, pool=local.POOL, alias=alias)


MODELS = (
    model("killed"), model("faulty"), model("soaked", alias=None), model("ocr", local.ON_DEMAND),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without real parts, waiting takes no time."""
    if "world" not in request.fixturenames:
        monkeypatch.setattr(ready, "time", Clock())


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("life")
    with ExitStack() as running, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("TIDEGATE_", "MLFLOW_", "DOMINO_"))]:
            patch.delenv(name)
        dev = local.LocalEnvironment(folder / "dev", local.Plan("dev", MODELS, (VISITOR, "anna"), tuning=QUICK))
        promotion = Promotion(source="dev", principals=(VISITOR,))
        prod = local.LocalEnvironment(
            folder / "prod", local.Plan("prod", MODELS, (VISITOR, "anna"), promotion=promotion, production=True)
        )
        prod.keys = dev.keys  # one identity in both, like a token
        with not_run("A REAL MLFLOW, S3 AND TRITON"):
            store = running.enter_context(object_store(folder / "s3"))
            server = running.enter_context(
                mlflow_server(folder / "mlflow", f"{store.make_bucket(BUCKET)}/mlflow", store.variables)
            )
            for each in (dev, prod):
                running.enter_context(local.local_environment(each))
        patch.setenv("MLFLOW_TRACKING_URI", server.uri)
        patch.setenv("TIDEGATE_ENVIRONMENTS", str(local.environments_file(folder, [dev, prod])))
        patch.setenv("TIDEGATE_DATASETS", local.datasets_variable([dev, prod]))
        patch.setenv("TIDEGATE_API_KEY", dev.keys[VISITOR])
        yield World(dev, prod)
