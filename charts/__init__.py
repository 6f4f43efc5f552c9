"""The Helm chart, generated from the components: `python -m charts generate` writes `charts/tidegate/`.

| module | what happens there |
|---|---|
| `generate`, `placeholders` | the templates: components run once with placeholders in the place of values |
| `recording`, `writers` | what they ask of these is recorded, and written as text with Helm's actions |
| `arguments` | what the values are: keys, types and defaults, as the components' arguments say them |
| `values_schema`, `values_file` | the values as a JSON schema, and as YAML |
| `project`, `folder` | `Chart.yaml`, and the folder of the chart |
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components import EnvironmentArgs
from stacks.definition.base import NOT_IN_VALUES, Section

CHART = Path(__file__).parent / "tidegate"


def values_of(args: EnvironmentArgs) -> dict[str, Any]:
    """Return the chart's values that stand for a resolved environment; what is None is left out."""
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
