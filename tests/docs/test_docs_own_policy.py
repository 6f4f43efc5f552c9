"""The custom eviction policy in docs/custom-policy.md, from its file to the manifests of the cluster."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tidegate_contracts import eviction_process
from tidegate_contracts.eviction import EvictionSettings

from rollout.definition import check_definition
from rollout.render import render
from rollout.seen import CommandReport
from stacks.validate import read_definition

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "lab/demo/largest_first"
PAGE = (ROOT / "docs/custom-policy.md").read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def block(language: str, number: int = 0) -> str:
    return [text for found, text in BLOCKS if found == language][number]


def test_the_page_shows_the_files_of_the_demo_and_they_are_few_lines_of_python() -> None:
    assert [language for language, _ in BLOCKS] == ["python", "ini", "sh", "dockerfile", "sh", "yaml"]
    files = {"python": "largest_first.py", "ini": "largest_first-1.0.dist-info/entry_points.txt"}
    for language, file in files.items():
        assert block(language) == (HOME / file).read_text("utf-8")
    assert len([line for line in block("python").splitlines() if line.strip()]) == 7


def test_the_simulator_finds_the_policy_by_the_name_in_the_definition(tmp_path: Path) -> None:
    about = tmp_path / "largest_first-1.0.dist-info"
    about.mkdir()
    (tmp_path / "largest_first.py").write_text(block("python"), "utf-8")
    (about / "entry_points.txt").write_text(block("ini"), "utf-8")
    packages = ("policies/eviction", "contracts", "service")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in packages), "COLUMNS": "160"}

    def run(command: str) -> "subprocess.CompletedProcess[str]":
        words = shlex.split(command)
        assert words[0] == "python"
        return subprocess.run(
            [sys.executable, *words[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    made = run("python -m tidegate_eviction generate --out day.csv --models 12 --requests 400")
    assert made.returncode == 0, made.stderr
    done = run(block("sh"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^largest-first +\d", done.stdout, re.MULTILINE)
    assert "failed at" not in done.stdout


def with_overlay(tmp_path: Path, overlay: str) -> Path:
    tree = yaml.safe_load((ROOT / "stacks/inference.yaml").read_text("utf-8"))
    next(each for each in tree["environments"] if each["name"] == "dev").update(yaml.safe_load(overlay))
    file = tmp_path / "inference.yaml"
    file.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
    return file


def test_a_definition_takes_the_policy_and_its_pod_gets_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = with_overlay(tmp_path, block("yaml"))
    check_definition(file, CommandReport("check", str(file)))
    assert ": ok – 3 stacks" in capsys.readouterr().out
    definition = read_definition(file)
    (stack,) = (each for each in definition.stacks if each.environment.name == "dev")
    objects = {(item["kind"], item["metadata"]["name"]): item for item in render(stack, definition).objects}
    settings = objects["ConfigMap", "ondemand-small-eviction"]["data"][eviction_process.SETTINGS_FILE]
    assert EvictionSettings.model_validate_json(settings).policy == "largest-first"
    rest = [item["data"] for (kind, name), item in objects.items() if kind == "ConfigMap" and "small" not in name]
    others = [data[eviction_process.SETTINGS_FILE] for data in rest if eviction_process.SETTINGS_FILE in data]
    assert others
    assert all(EvictionSettings.model_validate_json(each).policy != "largest-first" for each in others)
    pods = [item["spec"]["template"]["spec"] for (kind, _), item in objects.items() if kind == "StatefulSet"]
    images = {each["image"] for pod in pods for each in pod.get("initContainers", ())}
    assert images == {block("sh", 1).partition("--tag ")[2].split()[0]}
