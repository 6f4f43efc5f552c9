"""The arguments of the components, as the chart's values know them: keys, types, defaults and what is said of each."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from components.args import ServerArgs
from stacks.definition.base import NOT_IN_VALUES, Section
from stacks.model_keys import bare, keys_of, tag_values


@dataclass(frozen=True)
class Argument:
    """One argument: a key of the values."""

    name: str
    key: str
    kind: Any  # Its type without None, with whatever is said beside it.
    required: bool
    default: Any
    """None where it is required, or where nothing holds without it; of a class of arguments a mapping: of its tag,
    where it is one of several."""
    about: str  # The docstring below the field, else that of the class that it holds or stands in.

    @property
    def zero(self) -> bool:
        """Whether it may be zero."""
        return bare(self.kind) is not int or TypeAdapter(self.kind).json_schema().get("minimum", 0) <= 0

    @property
    def classes(self) -> tuple[type[Section], ...]:
        """The classes of arguments that stand here, in a list or not: several for a choice, none for plain values."""
        return classes(item_type(self.kind))


@cache
def arguments(owner: type[Section]) -> tuple[Argument, ...]:
    """Return the arguments of a class, in the order in which it declares them."""
    found = []
    for key in keys_of(owner).values():
        if NOT_IN_VALUES in key.field.metadata:
            continue
        kind = without_none(key.annotation)
        about = key.description or next(map(sentence, classes(item_type(kind))), sentence(owner))
        default, required = _default(key.field), key.field.is_required()
        found.append(Argument(key.attribute, key.name, kind, required, default, " ".join(about.split())))
    return tuple(found)


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    return default.model_dump(by_alias=True, exclude_defaults=True) if isinstance(default, BaseModel) else default


def without_none(kind: Any) -> Any:
    """Return the type of a value that is there, of one that may also be None."""
    if get_origin(kind) is Annotated:
        inner, *beside = get_args(kind)
        return Annotated[(without_none(inner), *beside)]
    if is_choice(kind):
        there = [each for each in get_args(kind) if each is not NoneType]
        return there[0] if len(there) == 1 else Union[tuple(there)]  # noqa: UP007
    return kind


def item_type(kind: Any) -> Any:
    """Return the type of a list's items; the type itself where it is no list."""
    kind = bare(without_none(kind))
    return without_none(get_args(kind)[0]) if get_origin(kind) in (Sequence, list, tuple) else kind


def is_list(kind: Any) -> bool:
    """Say whether values of this type are lists."""
    return get_origin(bare(kind)) in (Sequence, list, tuple)


def is_mapping(kind: Any) -> bool:
    """Say whether values of this type are mappings with keys of the user's own."""
    return get_origin(bare(kind)) in (Mapping, dict)


def is_choice(kind: Any) -> bool:
    """Say whether values of this type may be of several kinds."""
    return get_origin(kind) in (Union, UnionType)


def classes(kind: Any) -> tuple[type[Section], ...]:
    """Return the classes of arguments that a type chooses from; none for a plain value."""
    kind = bare(kind)
    choices = get_args(kind) if is_choice(kind) else (kind,)
    return tuple(each for each in choices if isinstance(each, type) and issubclass(each, Section))


def tag(kinds: tuple[type[Section], ...]) -> str:
    """Return the key that tells the classes of a choice apart."""
    first, *others = [{each.key for each in arguments(kind) if get_origin(each.kind) is Literal} for kind in kinds]
    (key,) = first.intersection(*others)
    return key


def meant(kinds: tuple[type[Section], ...]) -> str | None:
    """Return what is meant where a choice does not say its tag: servers have a kind even then."""
    return "triton" if issubclass(kinds[0], ServerArgs) else None


def chosen(kinds: tuple[type[Section], ...], value: Mapping[str, Any]) -> type[Section]:
    """Return the class of arguments that a value is of."""
    if len(kinds) == 1:
        return kinds[0]
    key = tag(kinds)
    said = value.get(key) or meant(kinds)
    return next(each for each in kinds if said in tag_values(each, key))


def sentence(owner: type[Section]) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join(inspect.cleandoc(owner.__doc__ or "").partition("\n\n")[0].split())
