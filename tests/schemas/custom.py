"""Custom kinds: the CRDs of the pinned modules as strict JSON schemas.

A CRD's own schema is open: the API server prunes unknown fields, or refuses them in strict mode. Here every object is
closed as in strict mode. Defaults are not filled in: if a CRD's condition needs a default, the object must have the
value.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lab import tools
from rollout.tools.cache import cache_root, digest, once
from tests.schemas import builtin

Schema = dict[str, Any]
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Words that mean nothing to a validator, or that `strict` translates.
_LEFT_OUT = {"description", "title", "default", "example", "properties", "items", "additionalProperties", "nullable"}


@cache
def folder() -> Path:
    """Return the folder with a schema file `<group>/<kind>_<version>.json` for every custom kind."""
    files = tools.crd_files()
    key = digest(builtin.folder().name, Path(__file__).read_bytes(), *(file.read_bytes() for file in files))
    made = cache_root() / "schemas" / f"crds-{key}"

    def make(partial: Path) -> None:
        for file in files:
            for crd in _crds(file):
                _write(crd, partial)

    once(made, make, "the JSON schemas of the CRDs")
    return made


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # ten times as fast with libyaml
    """Reads '=' as the text it is: PyYAML knows YAML 1.1's tag for it, but nothing to make of it."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.SafeLoader.construct_yaml_str)


def _crds(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open("rb") as text:
        for document in yaml.load_all(text, Loader=_Loader):
            if document and document.get("kind") == "CustomResourceDefinition":
                yield document


def _write(crd: Mapping[str, Any], into: Path) -> None:
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    (into / group).mkdir(parents=True, exist_ok=True)
    for version in (each for each in crd["spec"]["versions"] if each["served"]):
        api_version = f"{group}/{version['name']}"
        closed = strict(version["schema"]["openAPIV3Schema"])
        known = {"apiVersion": {"const": api_version}, "kind": {"const": kind}}
        closed["properties"] |= {**known, "metadata": builtin.definition(OBJECT_META)}
        closed["required"] = sorted({*closed.get("required", ()), "apiVersion", "kind", "metadata"})
        (into / group / f"{kind.lower()}_{version['name']}.json").write_text(json.dumps(closed), "utf-8")


def strict(node: Schema) -> Schema:
    """Return a part of a CRD's schema as JSON schema, closed wherever the API server would prune an unknown field.

    `allOf`, `anyOf`, `oneOf` and `not` stay as they are: in a CRD they only add conditions to fields named elsewhere.
    """
    out = {key: value for key, value in node.items() if key not in _LEFT_OUT and not key.startswith("x-kubernetes-")}
    if "properties" in node:
        out["properties"] = {name: strict(value) for name, value in node["properties"].items()}
    if "items" in node:
        out["items"] = strict(node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = strict(node["additionalProperties"])
    elif (node.get("type") == "object" or "properties" in node) and not _is_open(node):
        out["additionalProperties"] = False
    if node.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    # OpenAPI 3.0 has a flag for exclusive bounds, and JSON schema has separate bounds.
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if out.get(flag) is True:
            out[flag] = out.pop(bound)
        elif out.get(flag) is False:
            del out[flag]
    if node.get("nullable"):
        out |= (
            {"type": [*([kinds] if isinstance(kinds := out["type"], str) else kinds), "null"]} if "type" in out else {}
        )
        out |= {"enum": [*out["enum"], None]} if "enum" in out else {}
    return out


def _is_open(node: Schema) -> bool:
    return bool(
        node.get("x-kubernetes-preserve-unknown-fields")
        # A whole object inside another: its apiVersion, kind and metadata are known without being named.
        or node.get("x-kubernetes-embedded-resource")
        or node.get("additionalProperties")
    )
