import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tidegate.cli.app import app
from tidegate_contracts import routing
from typer.testing import CliRunner

from lab.local_plane import environment as local
from lab.local_plane.repository import Model, publish
from tests.proxy.rigs.pytest_rigs import not_run
from tests.proxy.rigs.repository import MODELS, SOURCES

TENSORS = [("INPUT", "TYPE_FP32", "3")], [("OUTPUT", "TYPE_FP32", "3")]
BATCHED = Model("batched", SOURCES / "echo.py", *TENSORS, batch=4)
LATE, HUGE = (Model(name, SOURCES / "echo.py", *TENSORS) for name in ("late", "huge"))
NAMED = {model.name: model for model in MODELS}
SHARES = (routing.VersionShare(version=1, weight=100), routing.VersionShare(version=2, weight=0))
ROUTED = (
    routing.Model(name="batched", server=local.PRELOAD, pool=local.POOL),
    routing.Model(name="versions", server=local.PRELOAD, pool=local.POOL, alias="champion"),
    routing.Model(name="add_sub", server=local.PRELOAD, pool=local.POOL, versions=SHARES),
    routing.Model(name="late", server=local.ON_DEMAND, pool=local.POOL, footprint_bytes=100 << 20),
    routing.Model(name="huge", server=local.ON_DEMAND, pool=local.POOL, footprint_bytes=2 << 30),
)
PLAN = local.Plan("dev", ROUTED, idle_seconds=3600)


@dataclass
class Cli:
    environment: local.LocalEnvironment
    variables: dict[str, str]

    def run(self, *words: str, stdin: str | None = None, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(words), input=stdin)
        assert done.exit_code == code, (done.output, done.exception)
        return done.stdout if code == 0 else done.output

    def json(self, *words: str, stdin: str | None = None) -> Any:
        return json.loads(self.run(*words, "--json", stdin=stdin))


@pytest.fixture(autouse=True)
def _variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key and an `environments.json`, and no variable that names a proxy."""
    monkeypatch.setenv("TIDEGATE_ENVIRONMENTS", str(tmp_path / "environments.json"))
    monkeypatch.setenv("TIDEGATE_API_KEY", "tgk_1")
    for name in ("DOMINO_INFERENCE_PROXY", "DOMINO_API_PROXY", "DOMINO_RUN_ID", "TIDEGATE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[local.LocalEnvironment]:
    made = local.LocalEnvironment(tmp_path_factory.mktemp("dev"), PLAN)
    for model in (BATCHED, NAMED["versions"], NAMED["add_sub"]):
        publish(model, made.repository(local.PRELOAD), made.staging(local.PRELOAD))
    for model in (LATE, HUGE):
        publish(model, made.repository(local.ON_DEMAND), made.staging(local.ON_DEMAND))
    with not_run("AN ENVIRONMENT OF REAL PROCESSES"), local.local_environment(made):
        yield made


@pytest.fixture
def cli(environment: local.LocalEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    variables = {
        "TIDEGATE_ENVIRONMENTS": str(local.environments_file(tmp_path, [environment])),
        "TIDEGATE_API_KEY": environment.keys["visitor"],
        "COLUMNS": "200",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Cli(environment, variables)
