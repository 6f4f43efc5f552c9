"""Follows the place of an error through the schema that pydantic made it from.

Pydantic names a place by `loc`, in which the labels of union branches stand among the keys. The core schema, from which
pydantic made those labels, is walked beside `loc`, so that each part of it is known for what it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from ..problems import Position

Path = tuple[str | int, ...]
Schema = dict[str, Any]

_CONTAINERS = ("union", "tagged-union", "dict", "list", "tuple", "set", "frozenset")


class Source(Protocol):
    """What was validated: a tree that knows where its values stand. A `Document` is one, and layers of them are;
    so is a definition that was read back from the values of a chart."""

    @property
    def tree(self) -> dict[str, Any]:
        """The whole tree."""

    def position(self, path: Path) -> Position:
        """Position of a key or list item, or of its nearest known ancestor."""

    def value_position(self, path: Path) -> Position:
        """Position of a value, likewise."""

    def get(self, path: Path) -> Any:
        """The value at `path`, or None."""

    def text(self, path: Path) -> str | None:
        """The scalar at `path` as it is written; None for anything else."""

    def path_text(self, path: Path) -> str:
        """The path in words for people."""


@dataclass(frozen=True)
class Branch:
    """A union on the way to an error: the `loc` and the path at which it stands, and the branch that was tried."""

    loc: Path
    path: Path
    label: str


@dataclass(frozen=True)
class Found:
    """One of pydantic's errors and what the walk along its `loc` has shown."""

    type: str
    message: str
    value: Any
    context: dict[str, Any]
    path: Path
    schema: Schema | None
    about_key: bool
    branches: tuple[Branch, ...]
    owners: tuple[tuple[Path, Keys], ...]
    hint: str
    alternatives: tuple[Found, ...] = ()
    typo_of: str = ""


@dataclass(frozen=True)
class Keys:
    """What may stand in a model's mapping: schemas by alias."""

    fields: dict[str, Schema]

    def below(self, walk: Walk) -> dict[str, list[str]]:
        """For each key that holds a model itself: the keys in there."""
        parts = {name: walk.unwrap(part.get("schema")) for name, part in self.fields.items()}
        return {name: list(walk.keys(part).fields) for name, part in parts.items() if part and is_model(part)}


def is_model(schema: Schema) -> bool:
    """Say whether the schema is of a mapping with known keys."""
    return schema.get("type") in ("model", "dataclass", "typed-dict", "model-fields")


class Walk:
    """Knows one model's core schema, and follows locations through it."""

    def __init__(self, schema: Any) -> None:
        self.root: Schema = schema
        self.named: dict[str, Schema] = {}

    def find(self, details: Any, base: Path) -> Found:
        """Follow one error's location."""
        loc: Path = tuple(details["loc"])
        path, branches, owners, about_key = base, [], [], False
        schema: Schema | None = self.unwrap(self.root)
        hint = ""
        for at, step in enumerate(loc):
            if schema is None:  # a validator of its own kind: what is left can only be keys
                path = (*path, step)
                continue
            kind = schema["type"]
            if kind == "tagged-union":
                schema = self.unwrap(next((s for tag, s in schema["choices"].items() if str(tag) == str(step)), None))
            elif kind == "union":
                branches.append(Branch(loc[:at], path, str(step)))
                schema = self._branch(schema, str(step))
            elif is_model(schema):
                keys = self.keys(schema)
                owners.append((path, keys))
                path = (*path, step)
                part = keys.fields.get(str(step))
                hint = _hint(part)
                schema = self.unwrap(part.get("schema")) if part else None
            elif kind == "dict" and loc[at + 1 :] == ("[key]",):
                path, about_key, schema = (*path, step), True, self.unwrap(schema.get("keys_schema"))
                break
            else:
                path = (*path, step)
                inside = schema.get("values_schema") if kind == "dict" else schema.get("items_schema")
                if isinstance(inside, list):  # a tuple's
                    inside = inside[min(int(step), len(inside) - 1)] if inside and isinstance(step, int) else None
                schema = self.unwrap(inside)
            hint = _hint(schema) or hint
        return Found(
            details["type"], details["msg"], details["input"], details.get("ctx") or {}, path, schema, about_key,
            tuple(branches), tuple(owners), hint,
        )  # fmt: skip

    def keys(self, schema: Schema) -> Keys:
        """The keys of a model's mapping, as they are written in YAML."""
        inner = schema
        while "fields" not in inner and isinstance(inner.get("schema"), dict):
            inner = self._resolve(inner["schema"])
        fields = inner.get("fields", {})
        named = fields.items() if isinstance(fields, dict) else [(part.get("name", ""), part) for part in fields]
        return Keys({_alias(name, part): part for name, part in named})

    def unwrap(self, wrapped: Any) -> Schema | None:
        """The schema under defaults, nullables, validators and references: the one that adds to `loc`."""
        for _ in range(1_000):  # a schema can refer to itself through nothing but wrappers
            if not isinstance(wrapped, dict):
                return None
            schema = self._resolve(wrapped)
            kind = schema["type"]
            if kind == "model" and schema.get("root_model"):
                wrapped = schema["schema"]
            elif kind == "union" and len(schema["choices"]) == 1:
                wrapped = _choice(schema["choices"][0])[0]
            elif kind in _CONTAINERS or is_model(schema):
                return schema
            elif kind == "chain":
                wrapped = schema["steps"][0]
            else:
                inner = schema.get("schema") or schema.get("strict_schema") or schema.get("python_schema")
                if inner is None:
                    return schema
                wrapped = inner
        return None

    def _resolve(self, schema: Schema) -> Schema:
        while schema.get("type") in ("definitions", "definition-ref"):
            if schema["type"] == "definitions":
                self.named.update({part["ref"]: part for part in schema["definitions"]})
                schema = schema["schema"]
            else:
                schema = self.named.get(schema["schema_ref"], {"type": "any"})
        return schema

    def _branch(self, union: Schema, label: str) -> Schema | None:
        best, likeness = None, 0
        for choice in union["choices"]:
            schema, own = _choice(choice)
            inner = self.unwrap(schema)
            if inner is None:
                continue
            if own is not None:
                fits = 4 if own == label else 0
            elif inner["type"] == "model":
                name = re.escape(inner["cls"].__name__)
                fits = 3 if re.search(rf"(?<![\w.]){name}(?![\w.])", label) else 0
            else:
                fits = 2 if label.startswith(inner["type"]) else 1 if f"{inner['type']}[" in label else 0
            if fits > likeness:
                best, likeness = inner, fits
        return best


def _choice(choice: Any) -> tuple[Schema, str | None]:
    return (choice[0], choice[1]) if isinstance(choice, tuple) else (choice, None)


def _alias(name: str, part: Schema) -> str:
    alias = part.get("validation_alias", name)
    while isinstance(alias, list):  # a choice of aliases, or a path of them: pydantic shows the first
        alias = alias[0] if alias else name
    return str(alias)


def _hint(schema: Schema | None) -> str:
    meta = (schema or {}).get("metadata") or {}
    updates, extra = meta.get("pydantic_js_updates"), meta.get("pydantic_js_extra")
    hints = [part.get(key) for part, key in ((extra, "hint"), (updates, "hint"), (updates, "description"))
             if isinstance(part, dict)]  # fmt: skip
    return next((hint for hint in hints if isinstance(hint, str) and hint), "")
