"""What the alerts ask Prometheus for."""

import re
from pathlib import Path

import yaml

EXPECTED = Path(__file__).parent / "expected" / "everything.yaml"


def asked_for(prefix: str) -> list[tuple[str, dict[str, str]]]:
    """Return the series with this prefix that alerts read, each with the labels that it must have."""
    rules = next(each for each in yaml.safe_load_all(EXPECTED.read_text("utf-8")) if each["kind"] == "PrometheusRule")
    found = []
    for rule in rules["spec"]["groups"][0]["rules"]:
        for name, selectors in re.findall(rf"({prefix}\w+)\{{(.*?)\}}", rule["expr"]):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', selectors))
            labels.pop("namespace")
            found.append((name, labels))
    return found
