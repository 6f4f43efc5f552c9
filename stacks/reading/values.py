"""What one scalar of YAML means, by the core schema of YAML 1.2."""

import re
from typing import Any, Final

CORE: Final = "tag:yaml.org,2002:"
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_INT_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FLOAT_NAME = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_NUMBER_START = frozenset("+-.0123456789")


def plain_value(text: str) -> Any:
    """A plain scalar by YAML 1.2's core schema; ValueError for a number of absurd length."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] in _NUMBER_START:
        if _INT.fullmatch(text):
            return int(text)
        if _INT_BASE.fullmatch(text):
            return int(text, 0)
        if FLOAT.fullmatch(text):
            return float(text)
        if _FLOAT_NAME.fullmatch(text):
            return float(text.replace(".", ""))
    return text


def copied(value: Any) -> Any:
    """A copy of its own for each alias, so that nobody who changes one place of the tree changes another."""
    if isinstance(value, dict):
        return {key: copied(below) for key, below in value.items()}
    return [copied(below) for below in value] if isinstance(value, list) else value


def kind_of(value: Any) -> str:
    """Return in words what kind of value this is."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping")
