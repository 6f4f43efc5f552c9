"""The typed model as an outline: its parts in the order of the file, and the keys of each with types in plain words."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..definition import Header, Platform, base
from ..definition.models import ModelName
from ..definition.placement import MigProfile

Model = type[BaseModel]
Path = tuple[str, ...]

# Types that stand at many keys, and the words for them.
NAMED_TYPES: tuple[tuple[str, Any], ...] = (
    ("DNS label", base.DnsLabel),
    ("object name", base.ObjectName),
    ("label key", base.LabelKey),
    ("label value", base.LabelValue),
    ("name of an environment variable", base.EnvironmentName),
    ("model name", ModelName),
    ("MIG profile", MigProfile),
    ("host name", base.Host),
    ("URL path", base.HttpPath),
    ("relative path", base.RelativePath),
)
_SUCH_AS: tuple[tuple[Any, str], ...] = (
    (base.CpuQuantity, "CPU cores such as `2` or `500m` (quote whole numbers)"),
    (base.ByteQuantity, "size such as `16Gi`"),
    (base.Cidr, "address range such as `10.0.0.0/8`"),
)
_CHOICE = re.compile(r"\^\(([\w|-]+)\)\$$")


@dataclass(frozen=True)
class Key:
    """One key of a part."""

    name: str
    annotation: Any
    field: FieldInfo
    owner: Model
    """Class that declares it; keys that several kinds inherit from one class are the same."""

    @property
    def models(self) -> tuple[Model, ...]:
        """The parts that stand at this key: none for a plain value, several for a choice."""
        return models_in(self.annotation)

    @property
    def tag(self) -> str | None:
        """The key that tells the parts of a choice apart, where there is one."""
        return tag_of(self.annotation)


@dataclass(frozen=True)
class Part:
    """A place in the file that has keys of its own."""

    path: Path
    key: Key | None
    """The key at which it stands; None for a part that stands at several places."""
    models: tuple[Model, ...]
    tag: str | None

    @property
    def title(self) -> str:
        """Its path in words."""
        return " › ".join(self.path)

    @property
    def anchor(self) -> str:
        """What links to it point at."""
        return "-".join(self.path)


def keys(model: Model) -> list[Key]:
    """Return the keys of a part: its name and kind, then those that must be there, then the others."""
    hints = get_type_hints(model, include_extras=True)
    found = [
        Key(str(field.alias), hints[name], field, _owner(model, name)) for name, field in model.model_fields.items()
    ]
    first = {"name": 0, "kind": 1, "mode": 1, "cloud": 1}
    return sorted(found, key=lambda key: (first.get(key.name, 2), not key.field.is_required()))


def outline() -> list[Part]:
    """Return every part of a definition in the order of the file, and then those that stand at several places."""
    parts: list[Part] = []
    shared = _shared()
    top: tuple[Model, ...] = (Platform, Header)
    for model in top:
        for key in keys_in_order(model):
            parts += _below(Part((key.name,), key, key.models, key.tag), shared)
    for model in shared:
        parts += _below(Part((words_of_class(model),), None, (model,), None), shared)
    return parts


def keys_in_order(model: Model) -> list[Key]:
    """Return the keys of a part in the order in which the model declares them."""
    by_name = {key.name: key for key in keys(model)}
    return [by_name[str(field.alias)] for field in model.model_fields.values()]


def common_keys(part: Part) -> list[Key]:
    """Return the keys that every kind of a choice has, but for its tag; all keys where there is no choice."""
    first, *others = [{key.name: key for key in keys(model)} for model in part.models]
    return [
        key
        for key in first.values()
        if not (others and key.name == part.tag)
        and all(key.name in other and other[key.name].owner is key.owner for other in others)
    ]


def words_of_class(model: Model) -> str:
    """Return what a part is called: the name of its class in small letters."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in model.__name__).strip()


def models_in(annotation: Any) -> tuple[Model, ...]:
    """Return the parts of the model that an annotation speaks of, in a list or not."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    if get_origin(annotation) is dict:
        return ()
    return tuple(dict.fromkeys(model for each in get_args(annotation) for model in models_in(each)))


def tag_of(annotation: Any) -> str | None:
    """Return the discriminator of the choice in an annotation."""
    if get_origin(annotation) is Annotated:
        for each in annotation.__metadata__:
            if isinstance(each, FieldInfo) and isinstance(each.discriminator, str):
                return each.discriminator
    return next((tag for each in get_args(annotation) if (tag := tag_of(each))), None)


def tag_values(model: Model, tag: str) -> tuple[str, ...]:
    """Return the values of the tag that stand for a branch."""
    return get_args(model.model_fields[tag].annotation)


def words(annotation: Any) -> str:
    """Return a type in plain words, in Markdown. Parts of the model are left to whoever knows where they stand."""
    for name, known in NAMED_TYPES:
        if annotation is known:
            return f"text: [{name}](#{anchor_of(name)})"
    for known, such_as in _SUCH_AS:
        if annotation is known:
            return such_as
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return " or ".join(words(each) for each in arguments if each is not NoneType)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(f"`{each}`" for each in arguments)
    if origin is tuple:
        item = words(arguments[0])
        return "list of texts" if item == "text" else f"list; each {item.removeprefix('text: ')}"
    if origin is dict:
        return "mapping: " + " → ".join(words(each).removeprefix("text: ") for each in arguments)
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}[annotation]


def anchor_of(name: str) -> str:
    """Return a name as the target of a link."""
    return name.lower().replace(" ", "-")


def hint_of(annotation: Any) -> str:
    """Return what the model says about the form of a text."""
    for each in getattr(annotation, "__metadata__", ()):
        if isinstance(each, FieldInfo) and isinstance(each.json_schema_extra, dict):
            return str(each.json_schema_extra.get("hint", ""))
    return ""


def pattern_of(annotation: Any) -> str:
    """Return the regular expression that a text must match."""
    return next((each.pattern for each in _constraints(annotation.__metadata__) if hasattr(each, "pattern")), "")


def _bounded(inner: Any, metadata: tuple[Any, ...]) -> str:
    """Return a type with its bounds, lengths or form."""
    bounds = {
        name: getattr(each, name)
        for each in _constraints(metadata)
        for name in ("ge", "gt", "le", "lt", "min_length", "pattern")
        if getattr(each, name, None) is not None
    }
    said = words(inner)
    if hint := hint_of(Annotated[inner, *metadata]):
        return f"text: {hint}" if " " in hint else f"text such as `{hint}`"
    if choice := _CHOICE.match(bounds.get("pattern", "")):
        return "one of " + ", ".join(f"`{each}`" for each in choice[1].split("|"))
    if inner is str:
        return f"text matching `{bounds['pattern']}`" if "pattern" in bounds else said
    if "min_length" in bounds:
        return f"{said}; at least {'one' if bounds['min_length'] == 1 else bounds['min_length']}"
    if "ge" in bounds and "le" in bounds:
        return f"{said} {bounds['ge']}–{bounds['le']}"
    if "gt" in bounds and "lt" in bounds:
        return f"{said} between {bounds['gt']} and {bounds['lt']}"
    if "ge" in bounds:
        return f"{said}, at least {bounds['ge']}"
    return said


def _constraints(metadata: tuple[Any, ...]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)


def _owner(model: Model, name: str) -> Model:
    return next(each for each in reversed(model.__mro__) if name in getattr(each, "__annotations__", {}))


def _shared() -> list[Model]:
    """Return the parts that stand at several keys without a choice; each is described once."""
    seen: set[Model] = set()
    places: Counter[Model] = Counter()

    def look(model: Model) -> None:
        if model in seen:
            return
        seen.add(model)
        for key in keys(model):
            if key.owner is model and len(key.models) == 1:
                places[key.models[0]] += 1
            for each in key.models:
                look(each)
        for parent in model.__bases__:
            if issubclass(parent, BaseModel) and parent.model_fields:
                look(parent)

    look(Platform)
    look(Header)
    return sorted((model for model, count in places.items() if count > 1), key=words_of_class)


def _below(part: Part, shared: list[Model]) -> list[Part]:
    parts, done = [part], set()
    for model in part.models:
        for key in keys_in_order(model):
            if key.models and key.name not in done and not (len(key.models) == 1 and key.models[0] in shared):
                done.add(key.name)
                parts += _below(Part((*part.path, key.name), key, key.models, key.tag), shared)
    return parts
