"""docs/metrics.md: every metric, dashboard and log field, from the code."""

from pathlib import Path
from typing import Any

from tidegate_contracts import log_fields, metrics

from components.dashboards import DASHBOARDS

from .tables import filled, table

_TEXT = Path(__file__).parent / "text" / "metrics.md"


def page() -> str:
    """Return the page."""
    families = {
        "Metrics of the proxy": metrics.PROXY,
        "Metrics of the eviction policy": metrics.EVICTION,
        "Metrics of engines": metrics.ENGINE,
    }
    shown = [(each.title, each.description) for each in DASHBOARDS]
    panels = [f"- **{each.title}.** {' '.join(map(_sentence, each.panels))}" for each in DASHBOARDS]
    fields = {**log_fields.ALWAYS, **log_fields.FIELDS}
    labels = [(f"`{name}`", meaning) for name, meaning in metrics.LABELS.items()]
    return filled(
        _TEXT,
        **{name: ", ".join(f"{each:g}" for each in seconds) for name, seconds in metrics.SECONDS.items()},
        metrics="\n".join(f"## {title}\n\n{_families(found)}" for title, found in families.items()),
        labels=table(("label", "meaning"), labels),
        dashboards="\n\n".join([table(("dashboard", "purpose"), shown), "The panels are:", "\n".join(panels)]),
        fields=table(("field", "meaning"), [(f"`{name}`", text) for name, text in fields.items()]),
    )


def _sentence(panel: dict[str, Any]) -> str:
    title = str(panel["title"])
    return title if title.endswith("?") else f"{title}."


def _families(found: dict[str, metrics.Family]) -> str:
    rows = [
        (f"`{each.series_name}`", each.kind, each.unit, ", ".join(f"`{label}`" for label in each.labels), each.text)
        for each in found.values()
    ]
    return table(("metric", "kind", "unit", "labels", "meaning"), rows)
