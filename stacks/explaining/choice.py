"""One mistake, one problem: which of pydantic's many errors the author has to hear of."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .walk import Found, Path, Source

EXPECTED = {
    "int_type": "a whole number", "int_parsing": "a whole number", "int_from_float": "a whole number",
    "float_type": "a number", "float_parsing": "a number", "decimal_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text", "path_type": "text (a path)", "url_type": "text (a URL)", "bytes_type": "text",
    "bool_type": "true or false", "bool_parsing": "true or false",
    "list_type": "a list", "tuple_type": "a list", "set_type": "a list", "frozen_set_type": "a list",
    "dict_type": "a mapping (key: value)", "mapping_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)", "model_attributes_type": "a mapping (key: value)",
    "dataclass_type": "a mapping (key: value)", "none_required": "nothing (null)",
}  # fmt: skip
BY_VALUE = ("literal_error", "enum", "is_instance_of")


def one_per_mistake(found: list[Found], document: Source, level: int) -> list[Found]:
    """Keep of every union the branch that the author most likely meant, and of a mistyped key one error of two."""
    kept: list[Found] = []
    unions: dict[Path, dict[str, list[Found]]] = {}
    for each in found:
        if len(each.branches) > level:
            branch = each.branches[level]
            unions.setdefault(branch.loc, {}).setdefault(branch.label, []).append(each)
        else:
            kept.append(each)
    for groups in unions.values():
        tried: list[list[Found]] = [one_per_mistake(group, document, level + 1) for group in groups.values()]
        at = next(iter(groups.values()))[0].branches[level].path
        if all(len(group) == 1 and group[0].path == at and _is_choice(group[0]) for group in tried):
            first = tried[0][0]
            kept.append(replace(first, alternatives=tuple(group[0] for group in tried)) if len(tried) > 1 else first)
        elif markers := _markers_of_all(tried, at):
            kept.append(replace(markers[0], alternatives=tuple(markers)))
        else:
            nearest: list[Found] = min(tried, key=partial(_distance, union=at))
            kept += nearest
    return _without_echoes(kept, document)


def _is_choice(found: Found) -> bool:
    return found.type in EXPECTED or found.type in BY_VALUE or bool(found.alternatives)


def _markers_of_all(tried: list[list[Found]], union: Path) -> list[Found]:
    """The errors of a value, such as `kind`, by which every branch says that it was not meant."""
    fitting = [group for group in tried if not any(each.path == union and _is_choice(each) for each in group)]
    markers = [[each for each in group if each.type in BY_VALUE and each.path[:-1] == union] for group in fitting]
    shared = set.intersection(*({each.path for each in group} for group in markers)) if len(markers) > 1 else set()
    return [each for group in markers for each in group if each.path in shared] if len(shared) == 1 else []


def _is_marker(found: Found) -> bool:
    """Whether a value is wrong that could only be one: such a field exists to tell branches apart."""
    return found.type == "literal_error" and len((found.schema or {}).get("expected", ())) == 1


def _distance(group: list[Found], union: Path) -> tuple[bool, int, int, int]:
    """How far a branch is from what was written: wrong kind of value, wrong marker value, how many errors, how deep."""
    wrong_kind = any(each.path == union and _is_choice(each) for each in group)
    markers = sum(_is_marker(each) and len(each.path) == len(union) + 1 for each in group)
    weight = sum(2 if each.type == "extra_forbidden" and not each.typo_of else 1 for each in group)
    return wrong_kind, markers, weight, -max(len(each.path) for each in group)


def _without_echoes(found: list[Found], document: Source) -> list[Found]:
    """Name for each unknown key the one it was meant to be, and drop the error that this one is missing."""
    missing = {each.path for each in found if each.type == "missing"}
    explained: set[Path] = set()
    out = []
    for each in found:
        if each.type == "extra_forbidden" and each.owners and not each.typo_of:
            parent, keys = each.owners[-1]
            present = document.get(parent)
            free = [key for key in keys.fields if not (isinstance(present, dict) and key in present)]
            lacking = [key for key in free if (*parent, key) in missing and (*parent, key) not in explained]
            near = nearest(each.path[-1], lacking) or nearest(each.path[-1], list(keys.fields), cutoff=1)
            near = near or nearest(each.path[-1], free) or nearest(each.path[-1], list(keys.fields))
            if near:
                explained.add((*parent, near))
                each = replace(each, typo_of=near)
        out.append(each)
    return [each for each in out if each.type != "missing" or each.path not in explained]


def nearest(word: Any, choices: Sequence[Any], cutoff: float = 0.6) -> str:
    """The choice that `word` was meant to be, or an empty text; spelling variants (idle_seconds) count as the same."""
    if not isinstance(word, str) or len(word) > 200:
        return ""
    plain = {_folded(choice): choice for choice in reversed(choices) if isinstance(choice, str)}
    near = difflib.get_close_matches(_folded(word), list(plain), n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def _folded(word: str) -> str:
    return re.sub(r"[_\-\s]", "", word).lower()
