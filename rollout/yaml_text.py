"""Objects as YAML: the same bytes for the same object, and in an order that people read."""

import re
from typing import Any

import yaml

_FIRST = {"": ("apiVersion", "kind", "metadata"), "item": ("name",)}
# What YAML parsers other than PyYAML (Go's among them) may read as a number or a truth value when it is not quoted.
_AMBIGUOUS = re.compile(r"[yYnN]|[-+]?(\.[0-9]|[0-9])[0-9_,.]*([eE][-+]?[0-9]+)?|[-+]?0[oxb][0-9a-fA-F_]+")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else "'" if _AMBIGUOUS.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(item: dict[str, Any]) -> str:
    """Return a Kubernetes object as YAML: its head first, the rest by name, text of several lines as a block."""
    text: str = yaml.dump(
        _ordered(item, ""), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=2**20
    )
    return text


def _ordered(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        first = [key for key in _FIRST.get(place, ()) if key in value]
        return {key: _ordered(value[key], "inside") for key in [*first, *sorted(value.keys() - set(first))]}
    if isinstance(value, (list, tuple)):
        return [_ordered(item, "item") for item in value]
    return value
