"""docs/metrics.md: every metric, dashboard and log field, from the code."""

from collections.abc import Mapping
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
    shown = [
        f"- **{each.title}.** {each.description} Panels: {' '.join(map(_sentence, each.panels))}" for each in DASHBOARDS
    ]
    fields = {**log_fields.ALWAYS, **log_fields.FIELDS}
    same = [name for name, text in fields.items() if metrics.LABELS.get(name) == text]
    own = {name: text for name, text in fields.items() if name not in same}
    return filled(
        _TEXT,
        **{name: f"{seconds[0]:g} to {seconds[-1]:g}" for name, seconds in metrics.SECONDS.items()},
        metrics="\n".join(f"## {title}\n\n{_families(found)}" for title, found in families.items()),
        labels=_listed(metrics.LABELS),
        dashboards="\n".join(shown),
        fields=_listed(own) + f"\n- {', '.join(f'`{name}`' for name in same)}: as in [labels](#labels)",
    )


def _listed(meanings: Mapping[str, str]) -> str:
    return "\n".join(f"- `{name}`: {meaning}" for name, meaning in meanings.items())


def _sentence(panel: dict[str, Any]) -> str:
    title = str(panel["title"])
    return title if title.endswith("?") else f"{title}."


def _families(found: dict[str, metrics.Family]) -> str:
    def series(each: metrics.Family) -> str:
        labels = f"{{{','.join(each.labels)}}}" if each.labels else ""
        return f"`{each.series_name}{labels}`{' (histogram)' if each.kind == 'histogram' else ''}"

    return table(("metric", "meaning"), [(series(each), each.text) for each in found.values()])
