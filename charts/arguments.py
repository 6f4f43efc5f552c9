"""The arguments of the components, as the chart's values know them: keys, types and defaults."""

from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from components.args import ServerArgs
from stacks.definition.base import NOT_IN_VALUES
from stacks.model_keys import Key, Model, bare, keys_of


@cache
def arguments(owner: Model) -> tuple[Key, ...]:
    """Return the arguments of a class, in the order in which it declares them."""
    return tuple(key for key in keys_of(owner).values() if NOT_IN_VALUES not in key.field.metadata)


def default_of(argument: Key) -> Any:
    """Return what holds without an argument; of a class of arguments a mapping: of its tag, where it is one of several.

    None where it is required, or where nothing holds without it.
    """
    if argument.field.is_required():
        return None
    default = argument.field.get_default(call_default_factory=True)
    return default.model_dump(by_alias=True, exclude_defaults=True) if isinstance(default, BaseModel) else default


def may_be_zero(argument: Key) -> bool:
    """Say whether zero is among an argument's values."""
    kind = argument.annotation
    return bare(kind) is not int or TypeAdapter(kind).json_schema().get("minimum", 0) <= 0


def item_type(kind: Any) -> Any:
    """Return the type of a list's items; the type itself where it is no list."""
    kind = bare(kind)
    return get_args(kind)[0] if is_list(kind) else kind


def is_list(kind: Any) -> bool:
    """Say whether values of this type are lists."""
    return get_origin(bare(kind)) is tuple


def is_mapping(kind: Any) -> bool:
    """Say whether values of this type are mappings with keys of the user's own."""
    return get_origin(bare(kind)) is dict


def meant(kinds: tuple[Model, ...]) -> str | None:
    """Return what is meant where a choice does not say its tag: servers have a kind even then."""
    return "triton" if issubclass(kinds[0], ServerArgs) else None
