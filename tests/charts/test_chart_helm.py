"""How the chart's own commands run Helm: without anybody's settings."""

import json
import os
from pathlib import Path

import pytest

from charts.helm import helm
from lab import tools


def test_nobodys_settings_have_a_say_in_what_a_chart_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins, repositories, credentials, a driver, a cluster: none of them reaches Helm, and all else does."""
    fake, told = tmp_path / "helm", tmp_path / "told"
    fake.write_text('#!/bin/sh\nenv -0 > "$TOLD"\n', "utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(tools, "path", lambda _: fake)
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.setenv("KUBECONFIG", "/somebody/config")
    for name in ("HELM_NAMESPACE", "HELM_DRIVER", "HELM_PLUGINS", "HELM_REGISTRY_CONFIG", "HELM_KUBECONTEXT"):
        monkeypatch.setenv(name, "somebody's")
    assert helm(["version"]).returncode == 0
    seen = dict(item.split("=", 1) for item in told.read_text("utf-8").split("\0") if item)
    assert {name: seen[name] for name in seen if name.startswith("HELM_") or name == "KUBECONFIG"} == {
        "KUBECONFIG": os.devnull,
        "HELM_PLUGINS": os.devnull,
        "HELM_REGISTRY_CONFIG": os.devnull,
    }
    assert seen["PATH"] == os.environ["PATH"]


def test_a_setting_that_would_break_helm_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM_DEBUG", "no truth value")
    monkeypatch.setenv("HELM_MAX_HISTORY", "x")
    done = helm(["version", "--template", '{{ .Version | printf "%q" }}'])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout).startswith("v4.")
