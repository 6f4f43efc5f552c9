"""Each command on a page exists. A test runs each block of commands, or a comment before it gives the reason."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from tidegate_eviction.__main__ import app as eviction
from typer.core import TyperGroup

from cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "proxy/README.md", "policies/eviction/README.md", "client/README.md"]
PAGES += [f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]+?) -->\n\n?)?^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN = {
    "README.md: make test   #": "tests/test_runs.py",
    "README.md: make demo-up ": "tests/lab/demo/test_demo_real.py",
    "client/README.md: pip install": "tests/requirements/test_packages.py",
    "docs/capacity.md: tidegate trace --prometheus": "tests/capacity/test_capacity_prometheus.py",
    "docs/capacity.md: tidegate trace --logs": "tests/capacity/test_capacity_call_logs.py",
    "docs/capacity.md: tidegate plan": "tests/capacity/test_capacity_plan.py",
    "docs/capacity.md: tidegate advise": "tests/capacity/test_capacity_advise_command.py",
    "docs/domino.md: tidegate rollout": "tests/cluster/test_rollout_planes.py",
    "docs/custom-policy.md: python -m tidegate_eviction simulate": "tests/docs/test_docs_own_policy.py",
    "docs/export.md: ": "tests/client/triton/export/test_export_docs.py",
    "docs/index.md: make demo ": "tests/lab/demo/test_demo_walk.py",
    "docs/index.md: make demo-lifecycle": "tests/lab/demo/test_demo_lifecycle.py",
    "docs/index.md: make demo-llm": "tests/lab/demo/test_demo_llm.py",
    "docs/index.md: make up     #": "tests/rollout/test_rollout_render.py",
    "docs/install.md: ": "tests/cluster/test_install.py",
    "docs/helm.md: tidegate values": "tests/cluster/test_handover.py",
    "docs/json.md: tidegate check --json": "tests/rollout/test_rollout_json.py",
    "docs/openai.md: tidegate model check chat": "tests/client/openai/test_openai_life.py",
    "docs/models.md: ": "tests/docs/test_docs_models.py",
    "docs/platform.md: tidegate init": "tests/rollout/init/test_init_platform.py",
    "docs/proxy-api.md: ": "tests/proxy/docs/test_docs_proxy_api.py",
    "docs/runbooks.md: ": "tests/docs/test_docs_runbooks.py",
    "docs/scaling.md: make demo-scaling": "tests/lab/demo/test_demo_scaling.py",
    "docs/simulator.md: pip install": "tests/requirements/test_packages.py",
    "docs/simulator.md: python -m": "tests/policies/eviction/simulate/test_simulate_command.py",
}
"""By page and start of a block: the test that runs it, or an equivalent (for runbooks: that checks each command)."""
PROGRAMS = {
    "cd", "curl", "do", "docker", "done", "export", "for", "gcloud", "git", "helm", "kubectl", "pip", "pulumi", "sort",
    "grep", ".", "python3", "printf", "cat", "cp", "rm", "sed", "mkdir", "python", "POD=$(kubectl",
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    page: str
    not_run: str | None
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text}"

    def lines(self) -> list[str]:
        whole = self.text.replace("\\\n", " ")
        whole = re.sub(r"<<'?(\w+)'?\n.*?^\1$", "", whole, flags=re.DOTALL | re.MULTILINE)
        whole = re.sub(r"'[^'\n]*\n[^']*'", "''", whole)  # a program, or JSON, on the standard input of another
        parts = [part for line in whole.splitlines() for part in re.split(r" && (?!\w+=)", line.partition(" #")[0])]
        parts = [re.sub(r'^(?:[A-Z_]+=(?:"[^"]*"|[^\s$]*)(?: |$))+', "", each) for each in parts]  # variables
        return [each.strip() for each in parts if each.strip() and not each.startswith((" ", "#"))]


BLOCKS = [Block(page, *found) for page in PAGES for found in BLOCK.findall((ROOT / page).read_text("utf-8"))]
LINES = sorted({(block.page, line) for block in BLOCKS for line in block.lines()})
MAKE = [(page, line) for page, line in LINES if line.startswith("make ")]
TIDEGATE = [(page, line) for page, line in LINES if line.startswith("tidegate ")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name.partition("\n")[0][:70])
def test_a_test_runs_a_block_or_a_comment_gives_the_reason(block: Block) -> None:
    whole_page = f"{block.page}: "
    by = [
        test for begins, test in RUN.items()
        if block.name.startswith(begins) and not (block.not_run and begins == whole_page)
    ]  # fmt: skip
    assert len(by) + bool(block.not_run) == 1, "exactly one of the two"
    assert not block.not_run or len(block.not_run.split()) >= 4


@pytest.mark.parametrize(("begins", "test"), RUN.items())
def test_each_entry_of_the_table_has_a_block_and_a_test(begins: str, test: str) -> None:
    assert any(block.name.startswith(begins) for block in BLOCKS)
    assert (ROOT / test).exists()


@pytest.mark.parametrize(("page", "line"), MAKE)
def test_make_has_the_goals_and_settings(page: str, line: str) -> None:
    del page
    makefile = (ROOT / "Makefile").read_text("utf-8")
    goals = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", makefile, re.MULTILINE))
    words = [word for word in shlex.split(line.partition(" > ")[0])[1:] if not word.startswith("-")]
    for word in words:
        name, setting, _ = word.partition("=")
        is_read = re.search(rf"\$\({name}\b|^export {name} \?=", makefile, re.MULTILINE)
        assert is_read if setting else name in " ".join(goals).split(), word


def test_make_names_only_tests_that_exist() -> None:
    paths = re.findall(r"\btests/\S+", (ROOT / "Makefile").read_text("utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("page", "line"), TIDEGATE)
def test_tidegate_has_the_command_and_its_options(page: str, line: str) -> None:
    del page
    words = shlex.split(line.partition(" | ")[0])[1:]
    at = typer.main.get_command(app)
    while isinstance(at, TyperGroup) and words and not words[0].startswith("-"):
        at = at.commands[words.pop(0)]
    known = {option for each in at.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def test_every_other_line_runs_a_known_program() -> None:
    others = [(page, line) for page, line in LINES if (page, line) not in (*MAKE, *TIDEGATE)]
    for page, line in others:
        words = line.split()
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, (page, line)
            if words[2] == "tidegate_eviction":
                assert words[3] in typer.main.get_command(eviction).commands, (page, line)  # type: ignore[attr-defined]
        else:
            assert words[0].lstrip("(") in PROGRAMS or words[0].startswith(("POD=$(", "#")), (page, line)


def test_docs_cli_is_what_make_writes() -> None:
    [recipe] = re.findall(r"^CLI_PAGE = (.*?)\n\n", (ROOT / "Makefile").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    command = recipe.replace("$(RUN)", sys.executable).replace("\\#", "#").replace("$$", "$")
    written = subprocess.check_output(["bash", "-c", command], cwd=ROOT, text=True, timeout=60)
    assert (ROOT / "docs/cli.md").read_text("utf-8") == written, "Run make docs."


def test_the_definition_in_the_readme_is_the_small_reference() -> None:
    small = (ROOT / "stacks/reference/small.yaml").read_text("utf-8")
    assert f"```yaml\n{small}```" in (ROOT / "README.md").read_text("utf-8")
