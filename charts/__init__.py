"""The Helm chart, generated from the components: `python -m charts generate` writes `charts/tidegate/`.

| module | contents |
|---|---|
| `generate`, `placeholders` | templates: the components run once with placeholders for values |
| `recording`, `writers` | the recorded uses of placeholders, written as text with Helm's actions |
| `arguments` | keys, types and defaults of the values, from the components' arguments |
| `values_schema`, `values_file` | the values as a JSON schema and as YAML |
| `project`, `folder` | `Chart.yaml`, and the chart's directory |
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components import EnvironmentArgs
from stacks.definition.base import NOT_IN_VALUES, Section

CHART = Path(__file__).parent / "tidegate"


def values_of(args: EnvironmentArgs) -> dict[str, Any]:
    """Return the chart's values for a resolved environment, without those that are None."""
    values: dict[str, Any] = _value(args)
    return values


def templates() -> dict[str, str]:
    """Return the chart's templates: file name below `templates/` → text."""
    from .generate import chart_templates

    return chart_templates()


def _value(value: Any) -> Any:
    if isinstance(value, Section):
        fields = type(value).model_fields.items()
        found = {
            str(field.alias): getattr(value, name) for name, field in fields if NOT_IN_VALUES not in field.metadata
        }
        return {key: _value(item) for key, item in found.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return value
