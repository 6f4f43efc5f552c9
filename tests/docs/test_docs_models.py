"""docs/models.md: its commands do what it says, with a real MLflow, real Tritons and real proxies."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from tidegate.cli.app import app

from demo.lifecycle import notebook
from demo.lifecycle.world import DEPLOYER, DEVELOPER, World, world
from local_plane.process import CannotBeHadError
from local_plane.triton import installed

PAGE = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text("utf-8")
MARK = "--- 8-8-8 ---"
SECONDS = 600


def examples() -> list[tuple[str, str]]:
    """Return each block of commands, with what the page says that it prints."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert {language for language, _ in blocks} <= {"sh", "text"}
    found = []
    for (language, text), (after, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language == "sh":
            found.append((text, shown if after == "text" else ""))
    return found


def as_pattern(shown: str) -> re.Pattern[str]:
    """Return what matches: `…` is anything within a line, and alone in a line any lines, or none."""
    parts = []
    for line in shown.splitlines():
        anything = r"(?:[^\n]*\n)*?" if line.strip() == "…" else ""
        parts.append(anything or "[^\n]*".join(map(re.escape, line.split("…"))) + r" *\n")
    return re.compile("".join(parts))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        with world(tmp_path_factory.mktemp("models")) as made:
            yield made
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: {error}, so that nobody tried the commands of docs/models.md")


def prepare(made: World) -> dict[str, str]:
    """Leave what the page says that a notebook has left; return the variables that the page names."""
    notebook.train(made.work / "notebook", 1)
    notebook.golden(1, made.work / "golden.json")
    (made.work / "better.json").write_text(json.dumps({"weights": notebook.weights(2), "bias": notebook.BIAS}), "utf-8")
    notebook.golden(2, made.work / "better-golden.json")
    commands = made.root / "bin"
    commands.mkdir()
    (commands / "tidegate").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidegate "$@"\n', "utf-8")
    (commands / "tidegate").chmod(0o755)
    (commands / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    (commands / "python").chmod(0o755)
    have = installed()
    server = commands / "tritonserver"
    said = "".join(f'export {name}="{value}"\n' for name, value in have.variables.items())
    server.write_text(f'#!/bin/sh\n{said}exec "{have.server}" --backend-directory="{have.backends}" "$@"\n', "utf-8")
    server.chmod(0o755)
    analyzer = commands / "perf_analyzer"
    analyzer.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{have.libraries}" exec "{have.perf_analyzer}" "$@"\n', "utf-8")
    analyzer.chmod(0o755)
    return made.variables(DEVELOPER) | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "DEV_PROXY": made.dev.url,
        "PROD_PROXY": made.prod.url,
        "DEVELOPERS_KEY": made.keys[DEVELOPER],
        "DEPLOYERS_KEY": made.keys[DEPLOYER],
        "COLUMNS": "160",
    }


def test_the_commands_of_the_page_print_what_it_says(here: World) -> None:
    script = "".join(f"{text}\necho '{MARK}'\n" for text, _ in examples())
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=here.work,
        env=prepare(here),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    printed = done.stdout.split(f"{MARK}\n")
    others = [
        f"{text}\nprints\n{found}\nand the page says\n{shown}"
        for (text, shown), found in zip(examples(), printed, strict=False)
        if not as_pattern(shown).fullmatch(found)
    ]
    assert not others, "\n\n".join(others)
    assert done.returncode == 0
    assert len(printed) == len(examples()) + 1


def test_the_page_names_every_command() -> None:
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"tidegate {name}" in PAGE
