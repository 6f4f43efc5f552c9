"""PyTorch to ONNX. It is in no environment of the tests: its package is several GB, for GPUs."""

from pathlib import Path
from typing import Any

import numpy
import pytest
from tidegate.cli.app import app
from typer.testing import CliRunner

from .models import FEATURES, ROWS, export, sample
from .test_export_models import answers_its_golden_request, config

pytestmark = pytest.mark.thorough
ROWS_32 = ROWS[:9].astype("float32")


@pytest.fixture(autouse=True)
def torch() -> Any:
    try:
        import torch
    except ImportError as error:
        what = f"PYTORCH IS NOT HERE ({error}; install the client's extra `torch` beside the tests)"
        pytest.skip(f"NOT RUN: {what}, so that no model of it was exported.")
    return torch


def module(torch: Any) -> Any:
    """Make one with two outputs, of which one has no dimension but the batch's."""

    class Two(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(FEATURES, 4)

        def forward(self, rows: Any) -> Any:
            hidden = torch.relu(self.hidden(rows))
            return hidden, hidden.sum(1)

    return Two().eval()


def written(torch: Any, folder: Path) -> Path:
    import mlflow.pytorch

    mlflow.pytorch.save_model(
        module(torch), str(folder / "model"), pip_requirements=["torch"], serialization_format="pickle"
    )
    return folder / "model"


@pytest.mark.parametrize("rows", [1, 9])
def test_a_model_of_pytorch_answers_alike(rows: int, torch: Any, tmp_path: Path) -> None:
    words = ("--input", sample(tmp_path, ROWS_32[:rows]), "--trusted")
    done = export(written(torch, tmp_path), tmp_path / "made", *words)
    assert done.exit_code == 0, done.output
    checked = CliRunner().invoke(app, ["model", "check", "--strict", str(tmp_path / "made")])
    assert checked.exit_code == 0, checked.output
    described = config(tmp_path / "made")
    assert [(each.name, list(each.dims)) for each in described.input] == [("INPUT__0", [FEATURES])]
    assert described.output[0].name == "OUTPUT__0"
    assert answers_its_golden_request(tmp_path / "made")


def test_a_batch_of_any_size_is_answered_also_where_the_sample_had_one_row(torch: Any, tmp_path: Path) -> None:
    import onnxruntime

    one = sample(tmp_path, ROWS_32[:1])
    assert export(written(torch, tmp_path), tmp_path / "made", "--input", one, "--trusted").exit_code == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "made/1/model.onnx"))
    found = session.run(None, {"INPUT__0": numpy.repeat(ROWS_32[:1], 7, axis=0)})
    assert [each.shape for each in found] == [(7, 4), (7,)]
