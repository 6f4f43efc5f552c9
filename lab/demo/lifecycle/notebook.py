"""What a data scientist's notebook leaves behind: a program, its weights, and a request whose answer is known."""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

PROGRAM = Path(__file__).parent / "models" / "churn.py"
CUSTOMER = (0.5, 1.0, -2.0, 4.0)
"""Features of one."""
BIAS = 0.1
Weights = tuple[float, ...]


def weights(version: int) -> Weights:
    """Return what training found, for what becomes this version."""
    return (0.2 + 0.05 * version, -0.4, 0.1, 0.3)


def score(of: Weights, features: Sequence[float] = CUSTOMER) -> float:
    """Return what a model with these weights answers."""
    total = sum(weight * feature for weight, feature in zip(of, features, strict=True)) + BIAS
    return 1 / (1 + math.exp(-total))


def train(folder: Path, version: int) -> None:
    """Leave the program and the weights of a version in a folder."""
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text(json.dumps({"weights": weights(version), "bias": BIAS}), "utf-8")
    shutil.copyfile(PROGRAM, folder / "model.py")


def request() -> dict[str, Any]:
    """Return the tensors of a call."""
    return {"FEATURES": numpy.array([CUSTOMER], numpy.float32)}


def golden(version: int, file: Path) -> None:
    """Write the golden request of a version, with what it must answer."""
    tensor = {"name": "FEATURES", "datatype": "FP32", "shape": [1, len(CUSTOMER)], "data": CUSTOMER}
    said = {"request": {"inputs": [tensor]}, "outputs": {"SCORE": [score(weights(version))]}, "tolerance": 1e-4}
    file.write_text(json.dumps(said, indent=2), "utf-8")
