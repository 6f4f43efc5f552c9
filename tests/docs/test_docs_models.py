"""docs/models.md: its commands do what it says, with a real MLflow, real Tritons and real proxies.

This is the one story of a model's life that `make test` tells; the demo and tests/client/life tell it in more ways.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from tidegate.calling.credentials import find_credential
from tidegate.calling.proxy import ProxyClient
from tidegate.cli.app import app
from tidegate.cli.output import DEFECT
from tidegate.errors import ExitCode

from lab.demo.lifecycle import notebook
from lab.demo.lifecycle.notebook import write_shell
from lab.demo.lifecycle.world import DEVELOPER, ENDPOINT, World, world
from lab.local_plane.process import CannotBeHadError
from tests.client.life.calling import Caller

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


@pytest.fixture
def caller(here: World, tmp_path: Path) -> Iterator[Caller]:
    """What a model endpoint does all along: it calls production, where the model comes at some time."""
    notebook.golden(1, tmp_path / "golden.json")
    request = json.loads((tmp_path / "golden.json").read_text())["request"]
    with (
        ProxyClient(here.prod.url, find_credential({"TIDEGATE_API_KEY": here.keys[ENDPOINT]})) as client,
        Caller(client, "churn", request=request, comes_later=True) as calling,
    ):
        yield calling


def test_the_commands_of_the_page_print_what_it_says_and_no_call_of_production_fails(
    here: World, caller: Caller
) -> None:
    shell = write_shell(here)
    variables = here.variables(DEVELOPER, {"COLUMNS": "160"})
    script = f". '{shell}'\n" + "".join(f"{text}\necho '{MARK}'\n" for text, _ in examples())
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=variables,
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
    scores = [notebook.score(notebook.weights(version)) for version in (1, 2)]
    assert {round(answer, 4) for answer in caller.answers} == {round(score, 4) for score in scores}
    assert caller.failures == []


def test_the_page_names_every_command() -> None:
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"tidegate {name}" in PAGE


def test_the_page_has_every_exit_code() -> None:
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [*map(str, sorted([*map(int, ExitCode), DEFECT]))]
