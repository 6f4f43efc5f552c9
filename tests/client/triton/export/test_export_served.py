"""A real Triton serves exported entries with their own tensors and batches, and gives the originals' answers.

Its ONNX Runtime backend is only in NVIDIA's images. The test replaces the entry's `backend` by the Python backend,
with a program that runs the entry's `model.onnx` in ONNX Runtime. The rest of the entry is unchanged.
"""

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tidegate.registry.golden import read_golden

from lab.local_plane.triton import triton
from tests.proxy.rigs.pytest_rigs import not_run

from .models import CLASSES, FEATURES, ROWS, TARGETS, export, sample, saved


def exported(model: Any, entry: Path, folder: Path, packages: Path) -> None:
    """Export a trained model for the Python backend."""
    done = export(saved(model, folder / f"{entry.name}.saved"), entry, "--trusted", "--input", sample(folder))
    assert done.exit_code == 0, done.output
    shutil.copyfile(Path(__file__).parent / "files/serve.py", entry / "1/model.py")
    text = (entry / "config.pbtxt").read_text()
    own = ('backend: "onnxruntime"', 'platform: "onnxruntime_onnx"')
    assert all(each in text for each in own)
    text = text.replace(own[0], 'backend: "python"').replace(own[1], "")
    found = f'parameters {{ key: "packages" value {{ string_value: "{packages}" }} }}\n'
    (entry / "config.pbtxt").write_text(f"{text}{found}instance_group {{ kind: KIND_CPU }}\n")


def test_a_real_triton_answers_as_the_originals_did_in_batches_up_to_the_entrys(
    exporters: Path, tmp_path: Path
) -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    models = {
        "texts": LogisticRegression().fit(ROWS, CLASSES[TARGETS]),
        "trees": RandomForestClassifier(10, random_state=1).fit(ROWS, TARGETS),
    }
    for name, model in models.items():
        exported(model, tmp_path / "models" / name, tmp_path, exporters)
    with not_run("A REAL TRITON"), triton(tmp_path, tmp_path / "models") as server:

        def ask(name: str, request: dict[str, Any]) -> dict[str, Any]:
            url, body = f"http://{server.http}/v2/models/{name}/infer", json.dumps(request).encode()
            with urllib.request.urlopen(url, body, timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
            return found

        for name in models:
            golden = read_golden((tmp_path / "models" / name / "golden.json").read_bytes(), "golden.json")
            assert golden.differences(ask(name, golden.request)) == []
        [only] = golden.request["inputs"]

        def many(rows: int) -> dict[str, Any]:
            return {"inputs": [only | {"shape": [rows, FEATURES], "data": only["data"][:FEATURES] * rows}]}

        for rows in (1, 64):
            assert ask("trees", many(rows))["outputs"][0]["shape"][0] == rows
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask("trees", many(65))
