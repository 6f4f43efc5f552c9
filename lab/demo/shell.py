"""A file for a shell to source: it has the variables and commands of a demo that is running."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .stage import ROOT

PACKAGES = ("", "policies/eviction", "client", "contracts", "service")
PYTHONPATH = os.pathsep.join(str(ROOT / each) for each in PACKAGES)


def write_shell(root: Path, variables: Mapping[str, str], commands: Mapping[str, Sequence[str]]) -> Path:
    """Write the file below `root`. `commands` are arguments of Python by the name of the command."""
    programs = root / "bin"
    programs.mkdir()
    for name, arguments in commands.items():
        file = programs / name
        words = shlex.join([sys.executable, *arguments])
        file.write_text(f'#!/bin/sh\n{_exports({"PYTHONPATH": PYTHONPATH})}exec {words} "$@"\n', "utf-8")
        file.chmod(0o755)
    shell = root / "shell"
    shell.touch(0o600)  # It contains keys.
    path = f'export PATH={shlex.quote(str(programs))}{os.pathsep}"$PATH"'
    shell.write_text(f"{_exports(variables)}{path}\n", "utf-8")
    return shell


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
