"""Small definitions: an on-demand server, and the GPUs that it needs."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from stacks.stack import Definition
from stacks.validate import read_definition

A100 = "NVIDIA-A100-SXM4-80GB"
Tree = dict[str, Any]


def pool(profile: str, name: str = "main") -> Tree:
    placement = {"kind": "mig", "profile": profile, "product": A100}
    return {"name": name, "loading": {"mode": "on-demand"}, "placement": placement}


def tree_of(pools: list[Tree], models: list[Tree], cuts: list[dict[str, int]]) -> Tree:
    """Return a definition with an on-demand server, and one GPU for each cut. An empty cut is a whole GPU."""
    images = [("triton", "26.08-py3"), ("proxy", "0.2.0"), ("eviction-policy", "0.2.0")]
    one = {"nodes": 1, "product": A100, "perNode": 1}
    gpus = [{**one, **({"mig": {"slices": cut}} if cut else {})} for cut in cuts]
    return {
        "images": [{"name": name, "repository": f"registry.example.com/{name}", "tag": tag} for name, tag in images],
        "datasets": [{"name": "models", "kind": "nfs", "server": "192.0.2.7", "path": "/", "capacity": "1Gi"}],
        "servers": [{"name": "ondemand", "repository": {"dataset": "models"}, "pools": pools}],
        "proxy": {"auth": {"apiKeys": {"secret": "keys"}}, "access": [{"name": "all", "principals": ["tests"]}]},
        "models": models,
        "environments": [{"name": "dev"}],
        "dataPlanes": [{"name": "lab", "environments": ["dev"], "gpus": gpus}],
    }


def write(folder: Path, tree: Tree) -> Path:
    path = folder / "inference.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), "utf-8")
    return path


def pasted(definition: Definition, text: str) -> Definition:
    with TemporaryDirectory() as folder:
        return read_definition(write(Path(folder), _laid_over(definition.document.tree, yaml.safe_load(text))))


def _laid_over(under: Any, over: Any) -> Any:
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **{key: _laid_over(under.get(key), value) for key, value in over.items()}}
    if over and all(isinstance(each, list) and all("name" in item for item in each) for each in (under, over)):
        items = {item["name"]: item for item in under}
        for item in over:
            is_new = item["name"] not in items or item.get("remove")
            items[item["name"]] = item if is_new else _laid_over(items[item["name"]], item)
        return list(items.values())
    return over
