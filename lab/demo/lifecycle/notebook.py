"""The files of a data scientist's notebook, and the setup of a shell for docs/models.md."""

import json
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy

from .. import shell
from .world import DEPLOYER, DEVELOPER, World

PROGRAM = Path(__file__).parent / "models" / "churn.py"
CUSTOMER = (0.5, 1.0, -2.0, 4.0)  # The features of one customer.
BIAS = 0.1
Weights = tuple[float, ...]


def weights(version: int) -> Weights:
    """Return the trained weights of a version."""
    return (0.2 + 0.05 * version, -0.4, 0.1, 0.3)


def score(of: Weights) -> float:
    """Return the output of a model with these weights for CUSTOMER."""
    total = sum(weight * feature for weight, feature in zip(of, CUSTOMER, strict=True)) + BIAS
    return 1 / (1 + math.exp(-total))


def train(folder: Path, version: int) -> None:
    """Write the program and the weights of a version to a directory."""
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text(json.dumps({"weights": weights(version), "bias": BIAS}), "utf-8")
    shutil.copyfile(PROGRAM, folder / "model.py")


def request() -> dict[str, Any]:
    """Return the input tensors of a call."""
    return {"FEATURES": numpy.array([CUSTOMER], numpy.float32)}


def golden(version: int, file: Path) -> None:
    """Write the golden request of a version, with its expected output."""
    tensor = {"name": "FEATURES", "datatype": "FP32", "shape": [1, len(CUSTOMER)], "data": CUSTOMER}
    known = {"request": {"inputs": [tensor]}, "outputs": {"SCORE": [score(weights(version))]}, "tolerance": 1e-4}
    file.write_text(json.dumps(known, indent=2), "utf-8")


def write_shell(made: World) -> Path:
    """Prepare the working directory and the commands. Return a file for a shell to source."""
    train(made.work / "notebook", 1)
    golden(1, made.work / "golden.json")
    (made.work / "better.json").write_text(json.dumps({"weights": weights(2), "bias": BIAS}), "utf-8")
    golden(2, made.work / "better-golden.json")
    settings = made.settings(DEVELOPER)
    del settings["PYTHONPATH"]
    settings |= {
        "DEV_PROXY": made.dev.url,
        "PROD_PROXY": made.prod.url,
        "DEVELOPERS_KEY": made.keys[DEVELOPER],
        "DEPLOYERS_KEY": made.keys[DEPLOYER],
    }
    file = shell.write_shell(made.root, settings, {"tidegate": ("-m", "tidegate"), "python": ()})
    with file.open("a", encoding="utf-8") as script:
        script.write(f"cd {shlex.quote(str(made.work))}\n")
    return file
