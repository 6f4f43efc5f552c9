"""A shell for docs/models.md: what a notebook has left, the page's variables, and the commands on its PATH."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.local_plane.triton import installed

from . import notebook
from .world import DEPLOYER, DEVELOPER, World


def write_shell(made: World) -> Path:
    """Prepare the world's working folder and commands; return a file for a shell to read with `.`."""
    notebook.train(made.work / "notebook", 1)
    notebook.golden(1, made.work / "golden.json")
    (made.work / "better.json").write_text(json.dumps({"weights": notebook.weights(2), "bias": notebook.BIAS}), "utf-8")
    notebook.golden(2, made.work / "better-golden.json")
    commands = made.root / "bin"
    commands.mkdir()
    said = made.said(DEVELOPER)
    packages = {"PYTHONPATH": said.pop("PYTHONPATH")}
    _command(commands / "tidegate", [sys.executable, "-m", "tidegate"], packages)
    _command(commands / "python", [sys.executable], packages)
    have = installed()
    _command(commands / "tritonserver", [str(have.server), f"--backend-directory={have.backends}"], have.variables)
    _command(commands / "perf_analyzer", [str(have.perf_analyzer)], {"LD_LIBRARY_PATH": str(have.libraries)})
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
