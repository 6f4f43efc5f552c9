"""What a data scientist's notebook leaves behind, and a shell for docs/models.md that stands beside it."""

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
CUSTOMER = (0.5, 1.0, -2.0, 4.0)  # Features of one.
BIAS = 0.1
Weights = tuple[float, ...]


def weights(version: int) -> Weights:
    """Return what training found, for what becomes this version."""
    return (0.2 + 0.05 * version, -0.4, 0.1, 0.3)


def score(of: Weights) -> float:
    """Return what a model with these weights answers."""
    total = sum(weight * feature for weight, feature in zip(of, CUSTOMER, strict=True)) + BIAS
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


def write_shell(made: World) -> Path:
    """Prepare the world's working folder and commands; return a file for a shell to read with `.`."""
    train(made.work / "notebook", 1)
    golden(1, made.work / "golden.json")
    (made.work / "better.json").write_text(json.dumps({"weights": weights(2), "bias": BIAS}), "utf-8")
    golden(2, made.work / "better-golden.json")
    commands = made.root / "bin"
    commands.mkdir()
    said = made.said(DEVELOPER)
    packages = {"PYTHONPATH": said.pop("PYTHONPATH")}
    _command(commands / "tidegate", [sys.executable, "-m", "tidegate"], packages)
    _command(commands / "python", [sys.executable], packages)
    said |= {
        "DEV_PROXY": made.dev.url,
        "PROD_PROXY": made.prod.url,
        "DEVELOPERS_KEY": made.keys[DEVELOPER],
        "DEPLOYERS_KEY": made.keys[DEPLOYER],
    }
    file = made.root / "shell"
    file.touch(0o600)  # it holds keys
    path = f'export PATH={shlex.quote(str(commands))}{os.pathsep}"$PATH"'
    file.write_text(f"{_exports(said)}{path}\ncd {shlex.quote(str(made.work))}\n", "utf-8")
    return file


def _command(file: Path, words: list[str], variables: Mapping[str, str]) -> None:
    file.write_text(f'#!/bin/sh\n{_exports(variables)}exec {shlex.join(words)} "$@"\n', "utf-8")
    file.chmod(0o755)


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
