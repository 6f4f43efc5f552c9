"""What the alerts ask Prometheus for."""

import re
from pathlib import Path

import yaml

EXPECTED = Path(__file__).parent / "expected" / "everything.yaml"


def asked_for(prefix: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the series with this prefix that rules read, with the labels that each must have, None for any."""
    rules = next(each for each in yaml.safe_load_all(EXPECTED.read_text("utf-8")) if each["kind"] == "PrometheusRule")
    found = []
    for rule in rules["spec"]["groups"][0]["rules"]:
        for name, selectors in re.findall(rf"({prefix}\w+)\{{(.*?)\}}", rule["expr"]):
            labels = {
                label: value if how == "=" else None
                for label, how, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', selectors)
            }
            labels.pop("namespace")
            found.append((name, labels))
    return found
