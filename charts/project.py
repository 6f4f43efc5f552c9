"""The project's version and description from pyproject.toml, and the chart's `Chart.yaml`."""

import tomllib
from importlib import metadata
from pathlib import Path

from .values_file import scalar

ROOT = Path(__file__).resolve().parents[1]
NAME = "tidegate"
DISTRIBUTION = "tidegate-platform"
# Native sidecars, in which the eviction policies run, are stable from this version on.
KUBE_VERSION = ">=1.33.0-0"
KEYWORDS = ("gpu", "inference", "mig", "model-serving", "nvidia", "triton")


def version() -> str:
    """Return the version of the project and the chart."""
    in_checkout = (ROOT / "pyproject.toml").is_file()
    return _project()["version"] if in_checkout else metadata.version(DISTRIBUTION)


def chart_description() -> str:
    """Return the project's description, which is also the chart's."""
    return _project()["description"]


def _project() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def chart_yaml() -> str:
    """Return the text of `Chart.yaml`."""
    lines = [
        "apiVersion: v2",
        f"name: {NAME}",
        f"description: {scalar(chart_description())}",
        "type: application",
        f"version: {version()}",
        f"appVersion: {scalar(version())}",
        f"kubeVersion: {scalar(KUBE_VERSION)}",
        f"keywords: [{', '.join(KEYWORDS)}]",
    ]
    return "\n".join(lines) + "\n"
