"""A change to merge into the definition: its text, and its place."""

from collections.abc import Mapping
from typing import Any

import yaml

from stacks.problems import listed
from stacks.stack import Definition


def laid_over(environment: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change as an overlay of an environment in the definition."""
    return {"environments": [{"name": environment, **change}]}


def overlay_text(change: Mapping[str, Any]) -> str:
    """Return a change as YAML. The innermost lists and mappings have one line each."""
    return yaml.safe_dump(change, sort_keys=False, default_flow_style=None, width=100).rstrip()


def place_of(definition: Definition, environment: str) -> str:
    """Return the place into which to merge an overlay of an environment."""
    index = [each.name for each in definition.header.environments].index(environment)
    where = definition.document.position(("environments", index))
    planes = [each.data_plane.name for each in definition.stacks if each.environment.name == environment]
    every = f", for {listed(planes)}" if len(planes) > 1 else ""
    return f"{where.file}:{where.line} (environment {environment}{every})"


def size_text(size: int) -> str:
    """Return bytes in the definition's notation."""
    for suffix, unit in (("Mi", 1 << 20), ("M", 10**6), ("k", 10**3)):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
