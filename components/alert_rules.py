"""The recording rules and alerts of an environment: `alert_rules.yaml`, filled in."""

from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

from stacks.definition.environment import RUNBOOKS, Objectives

from .naming import Naming

_FILE = Path(__file__).with_suffix(".yaml")


class _Text(Template):
    """A text of the file, with @ as the delimiter, because Prometheus' templates use dollar signs."""

    delimiter = "@"


def alert_rules(naming: Naming, objectives: Objectives, runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    """Return the recording rules and alerts of an environment. Alerts link to their section of the page `runbooks`."""
    values = {
        "namespace": naming.namespace,
        "availability": objectives.availability,
        "answered": objectives.answered,
        "latency": objectives.latency,
        "latency_seconds": objectives.latency_seconds,
        "runbooks": runbooks,
    }

    def filled(tree: Any) -> Any:
        if isinstance(tree, str):
            return _Text(tree).substitute(values)
        return {key: filled(each) for key, each in tree.items()}

    return [filled(rule) for rule in _rules()]


@cache
def _rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(_FILE.read_text("utf-8"))["groups"]
    return list(group["rules"])
