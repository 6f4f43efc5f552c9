"""What the typed model says of its keys: their names in the file, their types, and the choices among them."""

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
    owner: Model  # Class that declares it; keys that several kinds inherit from one class are the same.

    @property
    def description(self) -> str:
        """The docstring below the field; nothing where there is none."""
        return self.field.description or ""

    @property
    def models(self) -> tuple[Model, ...]:
        """The parts that stand at this key: none for a plain value, several for a choice."""
        return models_in(self.annotation)

    @property
    def tag(self) -> str | None:
        """The key that tells the parts of a choice apart, where there is one."""
        return tag_of(self.annotation)


@cache
def keys_of(model: Model) -> dict[str, Key]:
    """Return the keys of a part by their names, in the order in which the model declares them."""
    hints = get_type_hints(model, include_extras=True)
    owners = {name: each for each in reversed(model.__mro__) for name in vars(each).get("__annotations__", {})}
    return {
        str(field.alias): Key(str(field.alias), name, hints[name], field, owners[name])
        for name, field in model.model_fields.items()
    }


def models_in(annotation: Any) -> tuple[Model, ...]:
    """Return the parts of the model that an annotation speaks of, in a list or not."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is dict:
        return ()
    return tuple(dict.fromkeys(model for each in get_args(annotation) for model in models_in(each)))


def bare(annotation: Any) -> Any:
    """Return a type without what is said beside it, and without None."""
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
    """Return the key that tells the parts of the choice in an annotation apart."""
    if get_origin(annotation) is Annotated:
        for each in annotation.__metadata__:
            if isinstance(tag := getattr(each, "discriminator", None), str):
                return tag
    return next((tag for each in get_args(annotation) if (tag := tag_of(each))), None)


def tag_values(model: Model, tag: str) -> tuple[str, ...]:
    """Return the values of the tag that stand for a part."""
    kind = model.model_fields[tag].annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


def branches(annotation: Any) -> dict[str, Any]:
    """Return the parts of a choice by their tags: those that pydantic names where it looks into one of them."""
    key, kind = tag_of(annotation), bare(annotation)
    found: dict[str, Any] = {}
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else ():
        told = [said.tag for said in getattr(each, "__metadata__", ()) if isinstance(said, Tag)]
        found |= dict.fromkeys(told or (tag_values(bare(each), key) if key else ()), each)
    return found


def hint_of(annotation: Any) -> str:
    """Return what the model says about the form of a text."""
    for each in getattr(annotation, "__metadata__", ()):
        extra = each.json_schema_extra if isinstance(each, FieldInfo) else None
        if isinstance(extra, dict) and "hint" in extra:
            return str(extra["hint"])
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return next((hint for each in get_args(annotation) if (hint := hint_of(each))), "")
    return ""
