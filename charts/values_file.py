"""Values as YAML with the same meaning for Helm, which reads parts of YAML 1.1, and for readers of YAML 1.2."""

import re
import textwrap
from typing import Any

import yaml

Values = dict[str, Any]

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*")
# Helm's YAML reads these, in upper or lower case, as truth values or null.
_NOT_PLAIN = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: Any, text: str) -> Any:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_PLAIN
    style = None if is_plain else "'" if '"' in text and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def values_text(values: Values, heading: str) -> str:
    """Return values as the text of a file with a heading of comments."""
    lines = (line for paragraph in heading.split("\n") for line in textwrap.wrap(paragraph, 118) or [""])
    comment = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    text = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return f"{comment}\n{text}"


def scalar(value: Any) -> str:
    """Return a text, a whole number or a truth value on one line."""
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=10**9)
    return text.removesuffix("...\n").removesuffix("\n")
