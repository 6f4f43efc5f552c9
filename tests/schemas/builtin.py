"""Kubernetes' own kinds: the strict JSON schemas of the PyPI package `kubernetes-validate`, made usable offline."""

import json
from collections.abc import Mapping
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from rollout.tools.cache import cache_root, digest, once

KUBERNETES = "1.36"
DEFINITIONS = "_definitions.json"


@cache
def folder() -> Path:
    """Return the folder with a schema file for every built-in kind, such as `ingress-networking-v1.json`."""
    version = metadata.version("kubernetes-validate")
    key = digest(version, KUBERNETES, Path(__file__).read_bytes())
    made = cache_root() / "schemas" / f"kubernetes-{KUBERNETES}-{version}-{key}"
    once(made, _make, f"the JSON schemas of Kubernetes {KUBERNETES}")
    return made


def _make(partial: Path) -> None:
    package = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    partial.mkdir()
    for file in (package / f"v{KUBERNETES}.0-local-strict").iterdir():
        # As shipped, "$id" is an address on the web and the references are relative to it: kubeconform would go there.
        schema = json.loads(file.read_text("utf-8").replace(f'"/api/{DEFINITIONS}#', f'"{DEFINITIONS}#'))
        schema.pop("$id", None)
        schema.pop("$schema", None)
        (partial / file.name).write_text(json.dumps(schema), "utf-8")


@cache
def _definitions() -> Mapping[str, Any]:
    definitions: Mapping[str, Any] = json.loads((folder() / DEFINITIONS).read_text("utf-8"))
    return definitions


def definition(name: str) -> dict[str, Any]:
    """Return a named definition, 'io.k8s.….ObjectMeta', with every reference in it replaced by what it means."""

    def whole(node: Any) -> Any:
        if isinstance(node, list):
            return [whole(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return whole(_definitions()["$defs"][node["$ref"].rpartition("/")[2]])
        return {key: whole(value) for key, value in node.items() if key != "description"}

    found: dict[str, Any] = whole(_definitions()["$defs"][name])
    return found
