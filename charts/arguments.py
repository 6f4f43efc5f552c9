"""The arguments of the components, as the chart's values know them: keys, types, defaults and what is said of each."""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import pulumi
from pydantic import BaseModel, TypeAdapter
from pydantic.alias_generators import to_camel

from components.fields import ENGINE_ONLY
from stacks.definition.base import byte_count

from .twins import twin_of

# Pulumi's `Input` names these in quotes.
_IN_INPUT = {"Output": pulumi.Output, "T": Any}


@dataclass(frozen=True)
class Argument:
    """One argument: a key of the values."""

    name: str
    key: str
    kind: Any
    """Its type without Pulumi's `Input` and without None."""
    required: bool
    default: Any
    """The definition's, where the argument has none itself. None where it is required, or where nothing holds
    without it; of a class of arguments a mapping: of its tag, where it is one of several."""
    form: Any
    """Its type in the definition, which says more of what it may be; its own where the definition has another."""
    about: str
    """The docstring below the field, else that of the class that it holds."""

    @property
    def zero(self) -> bool:
        """Whether it may be zero."""
        if bare(self.kind) is not int or meaning(self.kind) == "bytes":
            return bare(self.kind) is not int
        return bool(TypeAdapter(self.form).json_schema().get("minimum", 0) <= 0)

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes of arguments that stand here, in a list or not: several for a choice, none for plain values."""
        return classes(item_type(self.kind))


@cache
def arguments(owner: type) -> tuple[Argument, ...]:
    """Return the arguments of a class, in the order in which it declares them."""
    hints = get_type_hints(owner, localns=_IN_INPUT, include_extras=True)
    said = _docstrings(owner)
    found = []
    for field in fields(owner):
        if ENGINE_ONLY in field.metadata:
            continue
        kind = without_input(hints[field.name])
        default = _default(owner, field, kind)
        about = said.get(field.name) or " ".join(map(sentence, classes(item_type(kind))[:1]))
        found.append(
            Argument(
                field.name,
                to_camel(field.name),
                without_none(kind),
                default is MISSING,
                None if default is MISSING else default,
                _form(owner, field.name, without_none(kind)),
                about,
            )
        )
    return tuple(found)


def _default(owner: type, field: Field[Any], kind: Any) -> Any:
    """Return what holds where an argument is left out; MISSING where it may not be."""
    if field.default is not MISSING or field.default_factory is not MISSING:
        return field.default if field.default_factory is MISSING else field.default_factory()
    twin = twin_of(owner, field.name)
    if twin is None or twin.field.is_required() or meaning(kind) == "image":
        return MISSING
    default = twin.field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        default = default.model_dump(by_alias=True, exclude_defaults=True)
        return MISSING if any(each.required for each in arguments(chosen(classes(kind), default))) else default
    if meaning(kind) == "bytes" and default is not None:
        return byte_count(default)
    return default if default is not None or without_none(kind) is not kind else MISSING


def _form(owner: type, name: str, kind: Any) -> Any:
    twin = twin_of(owner, name)
    if twin is None or meaning(kind) in ("image", "bytes"):
        return kind
    theirs = without_none(twin.type)
    if classes(item_type(kind)):
        return Annotated[(kind, *theirs.__metadata__)] if is_list(kind) and get_origin(theirs) is Annotated else kind
    return theirs


def without_input(annotation: Any) -> Any:
    """Return a type with `Input[X]` (X, or something that gives an X later) replaced by X, at every depth."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(without_input(inner[0]), *annotation.__metadata__)]
    if origin in (Union, UnionType):
        now = [without_input(each) for each in inner if get_origin(each) not in (pulumi.Output, Awaitable)]
        return now[0] if len(now) == 1 else Union[tuple(now)]  # noqa: UP007 – the members are only known here
    if origin in (Sequence, Mapping, list, dict, tuple):
        return origin[tuple(each if each is ... else without_input(each) for each in inner)]
    return annotation


def without_none(kind: Any) -> Any:
    """Return a type that may be None as it is when it is not None."""
    if get_origin(kind) in (Union, UnionType):
        there = [each for each in get_args(kind) if each is not NoneType]
        return there[0] if len(there) == 1 else Union[tuple(there)]  # noqa: UP007
    return kind


def meaning(kind: Any) -> str | None:
    """Return the words that stand beside a type (see `components.fields`)."""
    if get_origin(kind) is Annotated:
        return next((each for each in kind.__metadata__ if isinstance(each, str)), None)
    return None


def bare(kind: Any) -> Any:
    """Return a type without what stands beside it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


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


def is_arguments(kind: Any) -> TypeGuard[type]:
    """Say whether a type is a class of arguments."""
    return isinstance(kind, type) and is_dataclass(kind)


def is_choice(kind: Any) -> bool:
    """Say whether values of this type may be of several kinds."""
    return get_origin(kind) in (Union, UnionType)


def classes(kind: Any) -> tuple[type, ...]:
    """Return the classes of arguments that a type chooses from; none for a plain value."""
    kind = bare(kind)
    return tuple(each for each in (get_args(kind) if is_choice(kind) else (kind,)) if is_arguments(each))


def tag(kinds: tuple[type, ...]) -> str:
    """Return the key that tells the classes of a choice apart."""
    first, *others = [{each.key for each in arguments(kind) if _choices(each.kind)} for kind in kinds]
    (key,) = first.intersection(*others)
    return key


def tag_values(owner: type, key: str) -> tuple[str, ...]:
    """Return the values of a tag that stand for a class."""
    (found,) = (_choices(each.kind) for each in arguments(owner) if each.key == key)
    return found


def chosen(kinds: tuple[type, ...], value: Mapping[str, Any]) -> type:
    """Return the class of arguments that a value is of."""
    if len(kinds) == 1:
        return kinds[0]
    key = tag(kinds)
    return next(each for each in kinds if value.get(key) in tag_values(each, key))


def _choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def sentence(owner: type) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join(inspect.cleandoc(owner.__doc__ or "").partition("\n\n")[0].split())


def title(owner: type) -> str:
    """Return what a class of arguments is called in the schema and the README."""
    return owner.__name__.removesuffix("Args")


def _docstrings(owner: type) -> dict[str, str]:
    """Return the texts that stand below the fields of a class, those it inherits included."""
    said: dict[str, str] = {}
    for each in reversed(owner.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    said[name] = " ".join(text.split())
    return said
