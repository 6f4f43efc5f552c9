"""Small definitions: an on-demand server, and the GPUs that it needs."""

from pathlib import Path
from typing import Any

import yaml

A100 = "NVIDIA-A100-SXM4-80GB"
Tree = dict[str, Any]


def pool(profile: str, name: str = "main") -> Tree:
    placement = {"kind": "mig", "profile": profile, "product": A100}
    return {"name": name, "loading": {"mode": "on-demand"}, "placement": placement}


def tree_of(pools: list[Tree], models: list[Tree], cuts: list[dict[str, int]]) -> Tree:
    """Return a definition with an on-demand server, and a GPU for each cut; an empty one is a whole GPU."""
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
