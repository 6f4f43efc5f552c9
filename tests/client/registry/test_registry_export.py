"""What MLflow's server has is exported by its address."""

from contextlib import suppress
from pathlib import Path

import pytest
from tidegate.errors import ExitCode

from tests.client.triton.export.models import export, have_exporters, refused, sample, trained

from .conftest import World
from .relay import Relay


def logged(world: World, folder: Path) -> str:
    """Log a forest as MLflow's clients do, register it, and return its run."""
    client = world.client()
    run = client.create_run(client.get_experiment_by_name("Default").experiment_id)
    client.log_artifacts(run.info.run_id, str(trained(folder)), "model")
    client.create_registered_model("forest")
    client.create_model_version("forest", f"{run.info.artifact_uri}/model", run.info.run_id)
    return str(run.info.run_id)


def test_a_run_and_a_registered_version_are_exported_alike(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_exporters()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", world.server.uri)
    run = logged(world, tmp_path)
    for place, source in enumerate((f"runs:/{run}/model", "models:/forest/1")):
        done = export(source, tmp_path / "twice" / str(place), "--input", sample(tmp_path), "--name", "forest")
        assert done.exit_code == 0, done.output
    first, second = ((tmp_path / "twice" / place / "1/model.onnx").read_bytes() for place in "01")
    assert first == second


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("models:/nothing/1", ExitCode.NOT_FOUND),
        ("models:/stored/7", ExitCode.NOT_FOUND),
        ("models:/stored/Production", ExitCode.NOT_FOUND),
        ("models:/stored/1/nothing", ExitCode.NOT_FOUND),
        ("models:/stored@champion", ExitCode.USAGE),
        ("models:/m-0123", ExitCode.NOT_FOUND),
        ("models:/", ExitCode.USAGE),
        ("runs:/0123/model", ExitCode.NOT_FOUND),
        ("runs:/RUN/nothing", ExitCode.NOT_FOUND),
        ("runs:/RUN/model/nothing", ExitCode.NOT_FOUND),
        ("runs:/RUN", ExitCode.USAGE),
    ],
)
def test_what_is_absent_is_refused_at_once_without_a_failed_request_or_an_invented_status(
    before: Relay, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, code: ExitCode
) -> None:
    """A server with a store behind it answers 500 for a file that is not there, and MLflow's client then tries on."""
    client = world.client()
    run = client.create_run(client.get_experiment_by_name("Default").experiment_id).info
    client.log_text(run.run_id, "", "model/MLmodel")
    with suppress(Exception):
        client.create_registered_model("stored")
        client.create_model_version("stored", f"{run.artifact_uri}/model", run.run_id)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", before.uri)
    statuses = []
    before.fault = lambda _method, _path, answer: statuses.append(answer.status)
    address = address.replace("RUN", run.run_id)
    said = refused(tmp_path, address, "--input", sample(tmp_path), code=code)
    assert f"{address} cannot be fetched" in said
    assert "HTTP 5" not in said
    assert max(statuses, default=0) < 500
