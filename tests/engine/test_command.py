import json
import socket
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from rollout import processes
from rollout.engines import pulumi_cli
from stacks.command import CommandError
from stacks.validate import read_definition

from .engine import ROOT, Project

REFERENCE = ROOT / "stacks" / "inference.yaml"


@pytest.fixture
def checkout(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the checkout in which the tested module finds itself."""
    for place in ("ROOT", "PROJECT"):
        monkeypatch.setattr(pulumi_cli, place, project.checkout)
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    return project


@pytest.fixture
def definition(checkout: Project) -> Path:
    return checkout.checkout / "stacks" / "inference.yaml"


def operate(command: Sequence[str], definition: Path) -> int:
    cli = pulumi_cli.find()
    assert cli is not None
    return pulumi_cli.operate(cli, read_definition(definition).stacks[0], definition, command)


def test_preview_creates_the_stack_and_shows_the_changes_of_up(
    checkout: Project, definition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert operate(["preview"], definition) == 0
    assert "dev-lab-proxy-deployment" in capsys.readouterr().out
    configuration = yaml.safe_load((checkout.checkout / "stacks" / "Pulumi.dev-lab.yaml").read_text())["config"]
    assert configuration == {"tidegate:environment": "dev", "tidegate:dataPlane": "lab"}


def test_another_definition_is_remembered_for_a_plain_pulumi_up(checkout: Project) -> None:
    definition = checkout.checkout / "stacks" / "object-store.yaml"
    assert operate(["preview"], definition) == 0
    assert "proxyAddress" in checkout.pulumi("preview", "--stack", "prod-multi").text


def test_up_returns_pulumis_exit_code_and_its_reason(definition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert operate(pulumi_cli.UP, definition) != 0
    assert "images.lock has no digest" in capsys.readouterr().out


def test_a_local_environment_needs_no_digests_but_a_cluster_that_can_be_reached(
    checkout: Project, definition: Path
) -> None:
    checkout.edit("  - name: dev\n", "  - name: dev\n    local: true\n")
    with pytest.raises(CommandError, match="there is no context eks-lab in the kubeconfig"):
        operate(pulumi_cli.UP, definition)


@pytest.mark.usefixtures("checkout")
def test_a_missing_login_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL")
    with pytest.raises(CommandError, match="pulumi login"):
        operate(["preview"], REFERENCE)


def test_a_missing_or_wrong_passphrase_is_reported(
    checkout: Project, definition: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    with pytest.raises(CommandError, match="Set PULUMI_CONFIG_PASSPHRASE"):
        operate(["preview"], definition)
    checkout.pulumi("stack", "init", "dev-lab", "--no-select")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "another")
    with pytest.raises(CommandError, match="PULUMI_CONFIG_PASSPHRASE is wrong"):
        operate(["preview"], definition)


def test_a_locked_stack_is_reported_with_a_remedy(checkout: Project, definition: Path) -> None:
    checkout.pulumi("stack", "init", "dev-lab", "--no-select")
    lock = checkout.root / "state" / ".pulumi" / "locks" / "organization" / "tidegate" / "dev-lab" / "somebody.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(json.dumps({"pid": 1, "username": "u", "hostname": "h", "timestamp": "2026-01-01T00:00:00Z"}))
    with pytest.raises(CommandError, match="pulumi cancel dev-lab"):
        operate(pulumi_cli.UP, definition)


@pytest.mark.parametrize("where", ["stacks/tidegate/dev-lab.json", "locks/organization/tidegate/dev-lab/dead.json"])
def test_a_state_that_a_killed_pulumi_left_unreadable_is_repaired(
    checkout: Project, definition: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert operate(["preview"], definition) == 0
    file = checkout.root / "state" / ".pulumi" / where
    file.parent.mkdir(parents=True, exist_ok=True)
    if "locks" in where:
        with subprocess.Popen(["true"]) as ended:
            ended.wait()
        processes.life_file(f"pulumi-{ended.pid}").touch()  # as a killed run of this machine leaves it
        holder = {"pid": ended.pid, "username": "u", "hostname": socket.gethostname()}
        file.write_text(json.dumps({**holder, "timestamp": datetime.now(UTC).isoformat()}))
    attributes = file.with_name(f"{file.name}.attrs")
    attributes.write_text("")
    assert "EOF" in checkout.pulumi("up", "--yes", "--stack", "dev-lab", code=None).text
    assert operate(pulumi_cli.UP, definition) != 0
    assert "images.lock has no digest" in capsys.readouterr().out, "it came as far as it does with a sound state"
