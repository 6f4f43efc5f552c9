"""The alert rules of an environment with every feature, and the series that they read."""

import re
from typing import Any

from .expected import objects


def rules() -> list[dict[str, Any]]:
    [found] = (item for item in objects("prod-all") if item["kind"] == "PrometheusRule")
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def series_read(prefix: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the series with this prefix that rules read, with the labels that each must have, None for any."""
    found = []
    for rule in rules():
        for name, selectors in re.findall(rf"({prefix}\w+)\{{(.*?)\}}", rule["expr"]):
            labels = {
                label: value if how == "=" else None
                for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selectors)
            }
            labels.pop("namespace")
            found.append((name, labels))
    return found
