"""An answer as the part of a definition that it is: `pools:` of a server, and `models:` with their pools."""

import re
from typing import Any, Final

import yaml
from tidegate_eviction.simulate.trace import Trace

from stacks.definition.base import LEAST_BYTES

from .answers import Answer, pool_tree

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")


def pools_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the pools of an on-demand server."""
    return [pool_tree(answer.gpu, name, pool.on, pool.replicas) for name, pool in answer.named()]


def models_of(answer: Answer, trace: Trace, server: str) -> list[dict[str, Any]]:
    """Return the models, each with its pool and the footprint that was simulated."""
    found = []
    sizes = {model.name: model.footprint_bytes for model in trace.models}
    for name, pool in answer.named():
        for model in sorted(pool.models):
            tree: dict[str, Any] = {"name": model, "server": server, "pool": name}
            tree |= {"pinned": True} if model in pool.pinned else {}
            tree |= {"footprint": _quantity(sizes[model])} if sizes[model] >= LEAST_BYTES else {}
            found.append(tree)
    return found


def unfit_names(answer: Answer) -> list[str]:
    """Return the models whose names no definition takes."""
    return sorted(name for pool in answer.pools for name in pool.models if not _NAME.fullmatch(name))


def block(answer: Answer, trace: Trace, server: str) -> str:
    """Return the text to paste: its pools below a server, its models below `models`."""
    unfit = unfit_names(answer)
    models = [model for model in models_of(answer, trace, server) if model["name"] not in unfit]
    return f"pools: # of server {server}\n{_lines(pools_of(answer))}\nmodels:\n{_lines(models)}"


def _lines(items: list[dict[str, Any]]) -> str:
    """Return a list with a line for each item."""
    texts = (yaml.safe_dump(item, default_flow_style=True, sort_keys=False, width=10_000).strip() for item in items)
    return "\n".join(f"  - {text}" for text in texts)


def _quantity(size: int) -> str:
    for suffix, unit in (("M", 10**6), ("k", 10**3)):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
