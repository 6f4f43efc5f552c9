"""The Grafana dashboards of one environment or all: JSON files in the format of Grafana 11 and later."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_TITLE = "Tidegate: "


@dataclass(frozen=True)
class Dashboard:
    """A dashboard, by the name of its file."""

    name: str

    @cached_property
    def content(self) -> dict[str, Any]:
        """The dashboard for any namespace. Do not change the result: it is cached."""
        read: dict[str, Any] = json.loads(Path(__file__).with_name(f"{self.name}.json").read_text("utf-8"))
        return read

    @property
    def title(self) -> str:
        """Its title without the common prefix."""
        return str(self.content["title"]).removeprefix(_TITLE)

    @property
    def description(self) -> str:
        return str(self.content["description"])

    @property
    def panels(self) -> list[dict[str, Any]]:
        """Its panels, without the titles of rows."""
        return [panel for panel in self.content["panels"] if panel["type"] != "row"]

    def written(self, namespace: str | None = None) -> str:
        """Return the dashboard as JSON, for any namespace or a given one. Only the first has a uid, because Grafana
        replaces a dashboard by another one with the same uid."""
        made = dict(self.content)
        if namespace is not None:
            del made["uid"]
            made["title"] = f"{_TITLE}{self.title} of {namespace}"
            chosen = {"current": {"text": [namespace], "value": [namespace], "selected": True}}
            variables = made["templating"]["list"]
            made["templating"] = {
                "list": [each | chosen if each["name"] == "namespace" else each for each in variables]
            }
        return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


DASHBOARDS = tuple(map(Dashboard, ("platform", "model", "slice", "engine", "proxy", "rollout")))
