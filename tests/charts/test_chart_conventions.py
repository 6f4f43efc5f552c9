"""What Helm and people who install charts expect of one."""

import re
from pathlib import Path

from charts import CHART
from charts.folder import default_values

from .rendering import helm


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
