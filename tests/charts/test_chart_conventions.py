import re
from pathlib import Path

import pytest

from charts import CHART, values_of
from charts.folder import default_values
from charts.values_file import values_text
from stacks.resolve import resolve
from stacks.validate import read_definition

from .rendering import ROOT, helm

DEFINITIONS = ROOT / "tests/definitions"


def notes(*arguments: str | Path) -> str:
    done = helm(["install", "release", CHART, "--dry-run=client", "--namespace", "here", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


@pytest.mark.parametrize("name", ["everything", "two-kinds", "object-store", ""])
def test_lint_accepts_the_default_values_and_those_of_definitions(name: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    more: list[str | Path] = ["--values", values] if name else []
    if name:
        definition = read_definition(DEFINITIONS / f"{name}.yaml")
        values.write_text(values_text(values_of(resolve(definition.stacks[0], definition.lock)), ""), "utf-8")
    done = helm(["lint", "--strict", CHART, *more])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert "ERROR" not in done.stdout


def test_an_older_kubernetes_is_refused() -> None:
    done = helm(["template", "release", CHART, "--kube-version", "1.32.9"])
    assert done.returncode != 0
    assert ">=1.33.0-0" in done.stderr


def test_notes_list_the_installed_parts_and_the_proxys_addresses() -> None:
    text = notes()
    values = default_values()
    assert f"Environment {values['name']} in namespace {values['namespace']['name']}" in text
    assert values["proxy"]["image"] in text
    for server in values["servers"]:
        assert f"  {server['name']}: {server['image']}" in text
        for pool in server["pools"]:
            assert re.search(rf"^    {pool['name']}: \d+ replicas?, {pool['loading']['mode']}, CPU", text, re.MULTILINE)
    assert "port-forward service/inference-proxy 8080:80" in text
    assert "Set proxy.access" in text
    assert "tidegate preflight --cluster" in text
    assert "Helm keeps the release's record in namespace here" in text
