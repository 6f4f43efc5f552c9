"""The keys of the typed model: their names in the file, their types, and their alternatives."""

from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

Model = type[BaseModel]


@dataclass(frozen=True)
class Key:
    """One key of a part of the definition."""

    name: str
    attribute: str  # Its name in Python.
    annotation: Any
    field: FieldInfo
    owner: Model  # Class that declares it. Several kinds can inherit one key.

    @property
    def description(self) -> str:
        """Return the docstring of the field, or an empty string."""
        return self.field.description or ""

    @property
    def models(self) -> tuple[Model, ...]:
        """Return the parts of this key: none for a plain value, several for alternatives."""
        return models_in(self.annotation)

    @property
    def tag(self) -> str | None:
        """Return the key that distinguishes alternatives, or None."""
        return tag_of(self.annotation)


@cache
def keys_of(model: Model) -> dict[str, Key]:
    """Return the keys of a part by their names, in the order of the model."""
    hints = get_type_hints(model, include_extras=True)
    owners = {name: each for each in reversed(model.__mro__) for name in vars(each).get("__annotations__", {})}
    return {
        str(field.alias): Key(str(field.alias), name, hints[name], field, owners[name])
        for name, field in model.model_fields.items()
    }


def models_in(annotation: Any) -> tuple[Model, ...]:
    """Return the parts of the model in an annotation, including those in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is dict:
        return ()
    return tuple(dict.fromkeys(model for each in get_args(annotation) for model in models_in(each)))


def bare(annotation: Any) -> Any:
    """Return a type without annotations and without None."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType):
            rest = [each for each in get_args(annotation) if each is not NoneType]
            if len(rest) > 1:
                return annotation
            annotation = rest[0]
        else:
            return annotation


def tag_of(annotation: Any) -> str | None:
    """Return the key that distinguishes the alternatives in an annotation, or None."""
    if get_origin(annotation) is Annotated:
        for each in annotation.__metadata__:
            if isinstance(tag := getattr(each, "discriminator", None), str):
                return tag
    return next((tag for each in get_args(annotation) if (tag := tag_of(each))), None)


def tag_values(model: Model, tag: str) -> tuple[str, ...]:
    """Return the values of the tag for a part."""
    kind = model.model_fields[tag].annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


def branches(annotation: Any) -> dict[str, Any]:
    """Return the alternatives of an annotation by their tags in pydantic's errors."""
    key, kind = tag_of(annotation), bare(annotation)
    found: dict[str, Any] = {}
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else ():
        tags = [one.tag for one in getattr(each, "__metadata__", ()) if isinstance(one, Tag)]
        found |= dict.fromkeys(tags or (tag_values(bare(each), key) if key else ()), each)
    return found


def hint_of(annotation: Any) -> str:
    """Return the form of a text in words, or an empty string."""
    for each in getattr(annotation, "__metadata__", ()):
        extra = each.json_schema_extra if isinstance(each, FieldInfo) else None
        if isinstance(extra, dict) and "hint" in extra:
            return str(extra["hint"])
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return next((hint for each in get_args(annotation) if (hint := hint_of(each))), "")
    return ""
