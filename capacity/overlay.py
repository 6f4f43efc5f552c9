"""A change of the definition as people paste it: its text, and its place."""

from collections.abc import Mapping
from typing import Any

import yaml

from stacks.problems import listed
from stacks.stack import Definition


def overlay_text(environment: str, change: Mapping[str, Any]) -> str:
    """Return the change as YAML of the whole definition, laid over an environment."""
    overlay = {"environments": [{"name": environment, **change}]}
    return yaml.safe_dump(overlay, sort_keys=False, default_flow_style=False, width=100)


def place_of(definition: Definition, environment: str) -> str:
    """Return where to paste what is laid over an environment."""
    index = [each.name for each in definition.header.environments].index(environment)
    where = definition.document.position(("environments", index))
    planes = [each.data_plane.name for each in definition.stacks if each.environment.name == environment]
    every = f"; it holds on {listed(planes)}" if len(planes) > 1 else ""
    return f"{where.file}:{where.line}, over what the environment {environment} has{every}"
