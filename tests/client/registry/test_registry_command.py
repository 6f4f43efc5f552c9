"""`tidegate register`, as people and programs run it."""

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path

from tidegate.errors import ExitCode
from tidegate.registry.registration import checked, registrant

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


def register(world: World, *arguments: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DOMINO_", "TIDEGATE_"))}
    environment |= {"MLFLOW_TRACKING_URI": world.server.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"} | variables
    command = [sys.executable, "-W", "ignore", "-m", "tidegate", "register", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_version_is_registered_once_with_its_golden_request(world: World, tmp_path: Path) -> None:
    root = entry(tmp_path, "commanded", {"config.pbtxt": CONFIG, "1/model.py": MODEL})
    golden = tmp_path / "golden.json"
    golden.write_text('{"request": {"inputs": [{"name": "IN"}]}, "outputs": {"OUT": [1.0]}}')
    first = register(world, root, "--golden", golden, "--server", "preload", DOMINO_STARTING_USERNAME="anna")
    assert first.returncode == ExitCode.OK, first.stderr
    assert "commanded-client/1" in first.stdout
    assert "registered as anna" in first.stderr
    again = register(world, root, "--json", DOMINO_STARTING_USERNAME="bob")
    said = json.loads(again.stdout)
    assert (said["model"], said["number"], said["registeredBy"]) == ("commanded", 1, "anna")
    registry = world.registry()
    found = registry.golden(registry.version("commanded", 1))
    assert found is not None
    assert found.outputs == {"OUT": [1.0]}


def test_files_that_a_notebook_or_an_editor_leaves_are_told_before_they_go_into_the_registry(tmp_path: Path) -> None:
    odd = {"1/.env": b"KEY=1", ".ipynb_checkpoints/config-checkpoint.pbtxt": b"", "1/__pycache__/model.pyc": b""}
    root = entry(tmp_path, "left", odd)
    told = [each.partition(": warning: ")[0] for each in checked(root, "left")]
    assert [told.count(str(root / path)) for path in odd] == [1, 1, 1]


def test_without_a_proxy_the_name_is_that_of_the_run_or_of_the_login_and_says_so() -> None:
    name, unproven = registrant({"DOMINO_STARTING_USERNAME": "anna"})
    assert name == "anna"
    assert "no proxy was asked" in unproven
    name, unproven = registrant({"DOMINO_INFERENCE_PROXY": "http://127.0.0.1:9"})
    assert name == getpass.getuser()
    assert "the proxy at http://127.0.0.1:9 does not prove it" in unproven
