"""The files of a data scientist's notebook, and the setup of a shell for docs/models.md."""

import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

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
    commands = made.root / "bin"
    commands.mkdir()
    settings = made.settings(DEVELOPER)
    packages = {"PYTHONPATH": settings.pop("PYTHONPATH")}
    _command(commands / "tidegate", [sys.executable, "-m", "tidegate"], packages)
    _command(commands / "python", [sys.executable], packages)
    settings |= {
        "DEV_PROXY": made.dev.url,
        "PROD_PROXY": made.prod.url,
        "DEVELOPERS_KEY": made.keys[DEVELOPER],
        "DEPLOYERS_KEY": made.keys[DEPLOYER],
    }
    file = made.root / "shell"
    file.touch(0o600)  # It contains keys.
    path = f'export PATH={shlex.quote(str(commands))}{os.pathsep}"$PATH"'
    file.write_text(f"{_exports(settings)}{path}\ncd {shlex.quote(str(made.work))}\n", "utf-8")
    return file


def _command(file: Path, words: list[str], variables: Mapping[str, str]) -> None:
    file.write_text(f'#!/bin/sh\n{_exports(variables)}exec {shlex.join(words)} "$@"\n', "utf-8")
    file.chmod(0o755)


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
