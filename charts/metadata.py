"""`Chart.yaml`: what Helm and Artifact Hub are told about the chart."""

import re
import tomllib
from pathlib import Path

from .values_file import scalar

ROOT = Path(__file__).resolve().parents[1]

NAME = "tidegate"
# Native sidecars, which hold the eviction policies, are stable from here on.
KUBE_VERSION = ">=1.33.0-0"
KEYWORDS = ("gpu", "inference", "mig", "model-serving", "nvidia", "triton")
# Keep a Changelog's headings, and Artifact Hub's words for them.
_KINDS = {
    "Added": "added",
    "Changed": "changed",
    "Deprecated": "deprecated",
    "Removed": "removed",
    "Fixed": "fixed",
    "Security": "security",
}


def version() -> str:
    """Return the version of the project, which is the chart's as well."""
    return _project()["version"]


def chart_description() -> str:
    """Return the chart's description: the project's."""
    return _project()["description"]


def _project() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def chart_yaml() -> str:
    """Return the text of `Chart.yaml`."""
    released, made = changes((ROOT / "CHANGELOG.md").read_text("utf-8"), version())
    lines = [
        "apiVersion: v2",
        f"name: {NAME}",
        f"description: {scalar(chart_description())}",
        "type: application",
        f"version: {version()}",
        f"appVersion: {scalar(version())}",
        f"kubeVersion: {scalar(KUBE_VERSION)}",
        f"keywords: [{', '.join(KEYWORDS)}]",
        "annotations:",
        f"  artifacthub.io/license: {_project()['license']}",
        "  artifacthub.io/category: ai-machine-learning",
        f'  artifacthub.io/prerelease: "{"false" if released else "true"}"',
        "  artifacthub.io/changes: |",
        *(f"    - kind: {kind}\n      description: {scalar(text)}" for kind, text in made),
    ]
    return "\n".join(lines) + "\n"


def changes(changelog: str, version: str) -> tuple[bool, list[tuple[str, str]]]:
    """Say whether a changelog has a version as released, and return the changes that it brings, each with its kind."""
    _, *sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    released = next((each for each in sections if re.match(rf"\[?{re.escape(version)}\b", each)), None)
    found = []
    for part in re.split(r"^### ", released or sections[0], flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        for item in re.split(r"^- ", body, flags=re.MULTILINE)[1:]:
            found.append((_KINDS[heading.strip()], " ".join(item.split())))
    return released is not None, found
