"""What Helm and people who install charts expect of one."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import CHART
from charts.folder import default_values, scenarios

from .rendering import helm

SCENARIOS = sorted(scenarios())


def template(*arguments: str | Path) -> list[dict[str, Any]]:
    done = helm(["template", "release", CHART, *arguments])
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def values_of_scenario(name: str) -> list[str | Path]:
    return ["--values", CHART / "ci" / name]


def notes(*arguments: str | Path) -> str:
    """What `helm install` says, without a cluster."""
    done = helm(["install", "release", CHART, "--dry-run=client", "--namespace", "here", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_lint_finds_nothing_with_the_charts_own_values() -> None:
    done = helm(["lint", "--strict", CHART])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert "ERROR" not in done.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_linted_and_its_objects_carry_the_usual_labels_and_selectors_no_version(
    scenario: str,
) -> None:
    done = helm(["lint", "--strict", CHART, *values_of_scenario(scenario)])
    assert done.returncode == 0, done.stdout + done.stderr
    objects = template(*values_of_scenario(scenario), "--kube-version", "1.33.0")
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))
    assert {"Namespace", "Deployment", "StatefulSet"} <= {item["kind"] for item in objects}
    for item in objects:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "tidegate", item["kind"]
        assert {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"} <= labels.keys()
        selector = yaml.safe_dump(item.get("spec", {}).get("selector", {}))
        assert "helm.sh/chart" not in selector
        assert "version" not in selector


def test_an_older_kubernetes_is_refused() -> None:
    done = helm(["template", "release", CHART, "--kube-version", "1.32.9"])
    assert done.returncode != 0
    assert ">=1.33.0-0" in done.stderr


def test_notes_tell_what_was_installed_and_how_to_reach_it() -> None:
    text = notes()
    values = default_values()
    assert f"Environment {values['name']} in namespace {values['namespace']['name']}" in text
    assert values["proxy"]["image"] in text
    for server in values["servers"]:
        assert f"  {server['name']}: {server['image']}" in text
        for pool in server["pools"]:
            assert re.search(rf"^    {pool['name']}: \d+ replicas?, {pool['loading']['mode']}, CPU", text, re.MULTILINE)
    assert "port-forward service/inference-proxy 8080:80" in text
    assert "Nobody may call it yet" in text
    assert "tidegate preflight --cluster" in text
    assert "Helm keeps the release's own record in namespace here" in text
