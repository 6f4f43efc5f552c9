import getpass
import json
from pathlib import Path

import pytest
from tidegate.cli.app import app
from tidegate.errors import ExitCode
from tidegate.registry.registration import checked, registrant
from typer.testing import CliRunner, Result

from .conftest import World
from .entries import entry

MODEL = b"""import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
CONFIG = b"""backend: "python"
max_batch_size: 0
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }
"""


def test_a_version_is_registered_once_with_its_golden_request(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(*words: str | Path, user: str) -> Result:
        done = CliRunner().invoke(app, ["register", *map(str, words)], env={"DOMINO_STARTING_USERNAME": user})
        assert done.exit_code == ExitCode.OK, done.output
        return done

    for name in ("DOMINO_INFERENCE_PROXY", "TIDEGATE_ENVIRONMENTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", world.server.uri)
    root = entry(tmp_path, "commanded", {"config.pbtxt": CONFIG, "1/model.py": MODEL})
    golden = tmp_path / "golden.json"
    golden.write_text('{"request": {"inputs": [{"name": "IN"}]}, "outputs": {"OUT": [1.0]}}')
    first = register(root, "--golden", golden, "--server", "preload", user="anna")
    assert "commanded-client/1" in first.stdout
    assert "registered as anna" in first.stderr
    message = json.loads(register(root, "--json", user="bob").stdout)
    assert (message["model"], message["number"], message["registeredBy"]) == ("commanded", 1, "anna")
    registry = world.registry()
    found = registry.golden(registry.version("commanded", 1))
    assert found is not None
    assert found.outputs == {"OUT": [1.0]}


def test_files_of_notebooks_and_editors_are_reported_before_they_are_registered(tmp_path: Path) -> None:
    odd = {"1/.env": b"KEY=1", ".ipynb_checkpoints/config-checkpoint.pbtxt": b"", "1/__pycache__/model.pyc": b""}
    root = entry(tmp_path, "left", odd)
    caught = [each.partition(": warning: ")[0] for each in checked(root, "left")]
    assert [caught.count(str(root / path)) for path in odd] == [1, 1, 1]


def test_without_a_proxy_the_name_is_that_of_the_run_or_of_the_login_and_unproven() -> None:
    name, unproven = registrant({"DOMINO_STARTING_USERNAME": "anna"})
    assert name == "anna"
    assert "no proxy was configured" in unproven
    name, unproven = registrant({"DOMINO_INFERENCE_PROXY": "http://127.0.0.1:9"})
    assert name == getpass.getuser()
    assert "the proxy at http://127.0.0.1:9 could not authenticate you" in unproven
