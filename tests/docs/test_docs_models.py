"""The commands of docs/models.md print what the page shows, with a real MLflow, Triton servers and proxies. This is the
one test of a model's whole life in `make test`. The demo and tests/client/life have more."""

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
from tidegate.errors import ExitCode
from tidegate.output import DEFECT

from lab.demo.lifecycle import notebook
from lab.demo.lifecycle.notebook import write_shell
from lab.demo.lifecycle.world import DEVELOPER, ENDPOINT, World, world
from lab.local_plane.process import CannotBeHadError
from tests.client.life.calling import Caller
from tests.pages import as_pattern, examples

PAGE = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text("utf-8")
MARK = "--- 8-8-8 ---"
SECONDS = 600


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        with world(tmp_path_factory.mktemp("models")) as made:
            yield made
    except CannotBeHadError as error:
        pytest.skip(f"NOT RUN: A PART IS MISSING ({error}), so no test ran the commands of docs/models.md.")


@pytest.fixture
def caller(here: World, tmp_path: Path) -> Iterator[Caller]:
    """Return a caller that calls production all the time, like a model endpoint. The model appears there later."""
    notebook.golden(1, tmp_path / "golden.json")
    request = json.loads((tmp_path / "golden.json").read_text())["request"]
    with (
        ProxyClient(here.prod.url, find_credential({"TIDEGATE_API_KEY": here.keys[ENDPOINT]})) as client,
        Caller(client, "churn", request=request, comes_later=True) as calling,
    ):
        yield calling


def test_the_commands_have_the_output_of_the_page_and_no_call_of_production_fails(here: World, caller: Caller) -> None:
    shell = write_shell(here)
    variables = here.variables(DEVELOPER, {"COLUMNS": "160"})
    blocks = examples("docs/models.md")
    assert {block.language for block in blocks} == {"sh"}
    script = f". '{shell}'\n" + "".join(f"{block.text}\necho '{MARK}'\n" for block in blocks)
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
    differences = [
        f"{block.text}\nprints\n{found}\nbut the page shows\n{block.shown}"
        for block, found in zip(blocks, printed, strict=False)
        if not as_pattern(block.shown).fullmatch(found)
    ]
    assert not differences, "\n\n".join(differences)
    assert done.returncode == 0
    assert len(printed) == len(blocks) + 1
    scores = [notebook.score(notebook.weights(version)) for version in (1, 2)]
    assert {round(answer, 4) for answer in caller.answers} == {round(score, 4) for score in scores}
    assert caller.failures == []


def test_the_page_names_every_command() -> None:
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"tidegate {name}" in PAGE


def test_the_page_has_every_exit_code() -> None:
    assert re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE) == [*map(str, sorted([*map(int, ExitCode), DEFECT]))]
