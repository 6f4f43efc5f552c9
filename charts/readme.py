"""The chart's README: how to install it, and its values in a table as helm-docs writes them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from components import EnvironmentArgs
from stacks.model_keys import bare, tag_values
from stacks.problems import shortened

from .arguments import Argument, arguments, is_choice, is_list, meant, sentence, tag
from .packaging import KUBE_VERSION, NAME, chart_description, version

_LONGEST_DEFAULT = 60
_WORDS = {str: "string", int: "int", float: "float", bool: "bool"}

_TEXT = Path(__file__).parent / "text" / "README.md"


def readme(values: Mapping[str, Any]) -> str:
    """Return the README; `values` are those of `values.yaml`."""
    text = _TEXT.read_text("utf-8")
    lines = [text.format(name=NAME, description=chart_description(), version=version(), kubernetes=KUBE_VERSION)]
    for section in arguments(EnvironmentArgs):
        lines += [f"### {section.key}", "", section.about, ""]
        lines += ["| Key | Type | Default | Description |", "|---|---|---|---|"]
        lines += [*_rows(section, section.key, values), ""]
    return "\n".join(lines)


def _rows(argument: Argument, path: str, values: Any, of: str = "") -> Iterator[str]:
    """Yield the rows of an argument and of all below it; `values` are what stands in `values.yaml` around its key."""
    there = values.get(argument.key) if isinstance(values, Mapping) else None
    kinds = argument.classes
    if not kinds or not argument.required or is_list(argument.kind) or len(kinds) > 1:
        yield _row(path, _kind(argument.kind), _default(argument, there), of + argument.about)
    below, inner = (f"{path}[]", None) if is_list(argument.kind) else (path, there)
    key = tag(kinds) if len(kinds) > 1 else None
    if key is not None:
        known = [each for kind in kinds for each in tag_values(kind, key)]
        about = " ".join(["Which of these it is.", *map(sentence, kinds)])
        unsaid = meant(kinds)
        yield _row(f"{below}.{key}", _one_of(known), f'`"{unsaid}"`' if unsaid else "*required*", about)
    shared = [each for each in arguments(kinds[0]) if all(each in arguments(kind) for kind in kinds)] if kinds else []
    for each in shared:
        yield from _rows(each, f"{below}.{each.key}", inner)
    for kind in kinds:
        only = f"({' or '.join(tag_values(kind, key))}) " if key is not None else ""
        for each in arguments(kind):
            if each.key != key and each not in shared:
                yield from _rows(each, f"{below}.{each.key}", inner, only)


def _row(*cells: str) -> str:
    first, *rest = (cell.replace("|", "\\|") for cell in cells)
    return f"| `{first}` | " + " | ".join(rest) + " |"


def _default(argument: Argument, there: Any) -> str:
    if argument.classes and there:
        return "see `values.yaml`"
    if there is None and argument.required:
        return "*required*"
    value = argument.default if there is None else there
    return f"`{shortened(json.dumps(value, ensure_ascii=False), _LONGEST_DEFAULT)}`"


def _one_of(values: Iterable[str]) -> str:
    return " or ".join(f"`{each}`" for each in values)


def _kind(kind: Any) -> str:
    """Return what helm-docs calls a type; the choices where it is one of several texts."""
    plain = bare(kind)
    if is_list(plain):
        return "list"
    if get_origin(plain) is Literal:
        return _one_of(get_args(plain))
    if is_choice(plain):
        return " or ".join(dict.fromkeys(map(_kind, get_args(plain))))
    return _WORDS.get(plain, "object")
