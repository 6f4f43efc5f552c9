"""The Helm chart, generated from the components: `python -m charts generate` writes `charts/tidegate/`."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from components import EnvironmentArgs
from components.fields import ENGINE_ONLY

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
    if is_dataclass(value):
        found = {field: getattr(value, field.name) for field in fields(value) if ENGINE_ONLY not in field.metadata}
        return {to_camel(field.name): _value(item) for field, item in found.items() if item is not None}
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return value
