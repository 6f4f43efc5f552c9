"""What MLflow's server has is exported by its address."""

from pathlib import Path

import pytest
from tidegate.errors import ExitCode

from tests.client.triton.export.models import boosted, export, have_exporters, refused, sample

from .conftest import World


def logged(world: World, folder: Path) -> str:
    """Log a forest as MLflow's clients do, register it, and return its run."""
    import lightgbm
    import mlflow.lightgbm

    booster = lightgbm.Booster(model_file=str(boosted(folder)))
    mlflow.lightgbm.save_model(booster, str(folder / "model"), pip_requirements=["lightgbm"])
    client = world.client()
    run = client.create_run(client.get_experiment_by_name("Default").experiment_id)
    client.log_artifacts(run.info.run_id, str(folder / "model"), "model")
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
    said = refused(tmp_path, "models:/forest/7", "--input", tmp_path / "sample.npy", code=ExitCode.NOT_FOUND)
    assert "models:/forest/7 cannot be fetched" in said
