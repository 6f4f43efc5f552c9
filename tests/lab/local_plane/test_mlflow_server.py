"""The MLflow server of the rigs is a real one, with its artifacts where they were told to be."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from lab.local_plane.mlflow import MLflow, mlflow_server
from lab.local_plane.object_store import object_store
from lab.local_plane.process import listens
from tests.proxy.rigs.pytest_rigs import not_run


@pytest.fixture(autouse=True)
def client_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def log(server: MLflow, experiment: str) -> str:
    """Log an artifact, read it back, and return where the server says that it is."""
    client = MlflowClient(server.uri)
    run = client.create_run(client.create_experiment(experiment))
    client.log_text(run.info.run_id, "content", "folder/file.txt")
    assert Path(client.download_artifacts(run.info.run_id, "folder/file.txt")).read_text() == "content"
    return str(run.info.artifact_uri)


@pytest.mark.thorough
def test_artifacts_go_through_it_into_a_folder_or_a_real_s3_and_what_it_knows_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)  # clients need none
    with not_run("A REAL MLFLOW SERVER"), mlflow_server(tmp_path / "mlflow") as server:
        assert log(server, "first").startswith("mlflow-artifacts:/")
        assert [file.read_text() for file in (tmp_path / "mlflow" / "artifacts").rglob("file.txt")] == ["content"]
    assert not listens(server.port)
    with not_run("A REAL S3"), object_store(tmp_path / "s3") as store:
        place = f"{store.make_bucket('models')}/below"
        with mlflow_server(tmp_path / "mlflow", place, store.variables, port=server.port) as again:
            assert again.uri == server.uri
            assert MlflowClient(again.uri).get_experiment_by_name("first") is not None
            log(again, "second")
        (key,) = [item["Key"] for item in store.client().list_objects_v2(Bucket="models")["Contents"]]
        assert key.startswith("below/")
        assert key.endswith("/folder/file.txt")
