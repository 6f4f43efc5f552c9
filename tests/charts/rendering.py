"""The same environment twice: as the components declare it, and as Helm renders the chart with its values."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from charts import CHART, values_of
from charts.values_file import values_text
from components import Environment, EnvironmentArgs
from components.apply_order import apply_key
from components.evaluate import KubernetesObject, evaluate
from lab import tools

ROOT = Path(__file__).parents[2]
DEFINITIONS = [ROOT / "stacks/inference.yaml", *sorted((ROOT / "tests/definitions").glob("*.yaml"))]

Objects = list[KubernetesObject]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def helm(arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run Helm without a cluster, plug-ins, or the user's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    environment |= {"KUBECONFIG": os.devnull, "HELM_PLUGINS": os.devnull, "HELM_REGISTRY_CONFIG": os.devnull}
    command = [str(tools.path("helm")), *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", errors="replace", timeout=120
    )


def declared(args: EnvironmentArgs) -> Objects:
    return evaluate(lambda: Environment("tidegate", args))


def rendered(values: dict[str, Any], *arguments: str, chart: Path = CHART) -> Objects:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(values_text(values, "As `tidegate values` writes them."), "utf-8")
        done = helm(["template", "tidegate", chart, "--values", file, *arguments])
    assert done.returncode == 0, done.stderr
    found = [item for item in yaml.load_all(done.stdout, _Loader) if item]
    return sorted(found, key=apply_key)


def rendered_args(args: EnvironmentArgs, *arguments: str) -> Objects:
    return rendered(values_of(args), *arguments)


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{place}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line
            for number, (left, right) in enumerate(zip(one, other, strict=True))
            for line in differences(left, right, f"{place}[{number}]")
        ]
    return [] if one == other and type(one) is type(other) else [f"{place}: {one!r} ≠ {other!r}"]


def object_differences(one: Objects, other: Objects) -> list[str]:
    left, right = _by_identity(one), _by_identity(other)
    return differences(left, right)


def _by_identity(objects: Objects) -> dict[str, KubernetesObject]:
    found = {f"{item['apiVersion']} {item['kind']} {item['metadata']['name']}": item for item in objects}
    assert len(found) == len(objects)
    return found
