"""The arguments of the components as values of the chart: keys, types and defaults."""

from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from components.args import ServerArgs
from stacks.definition.base import NOT_IN_VALUES
from stacks.model_keys import Key, Model, bare, keys_of


@cache
def arguments(owner: Model) -> tuple[Key, ...]:
    """Return the arguments of a class in the order of their declaration."""
    return tuple(key for key in keys_of(owner).values() if NOT_IN_VALUES not in key.field.metadata)


def default_of(argument: Key) -> Any:
    """Return the default of an argument, or None if it is required or has none. The default of a class of arguments is
    a mapping with its tag, if it is one of several classes."""
    if argument.field.is_required():
        return None
    default = argument.field.get_default(call_default_factory=True)
    return default.model_dump(by_alias=True, exclude_defaults=True) if isinstance(default, BaseModel) else default


def may_be_zero(argument: Key) -> bool:
    """Return whether an argument can be zero."""
    kind = argument.annotation
    return bare(kind) is not int or TypeAdapter(kind).json_schema().get("minimum", 0) <= 0


def item_type(kind: Any) -> Any:
    """Return the type of a list's items, or the type itself if it is not a list."""
    kind = bare(kind)
    return get_args(kind)[0] if is_list(kind) else kind


def is_list(kind: Any) -> bool:
    """Return whether values of this type are lists."""
    return get_origin(bare(kind)) is tuple


def is_mapping(kind: Any) -> bool:
    """Return whether values of this type are mappings with arbitrary keys."""
    return get_origin(bare(kind)) is dict


def meant(kinds: tuple[Model, ...]) -> str | None:
    """Return the tag of a choice without a tag: that of Triton for servers."""
    return "triton" if issubclass(kinds[0], ServerArgs) else None
