"""The typed model as an outline: its parts in the order of the file, and the keys of each with types in plain words."""

from collections import Counter
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from ..definition import Header, Platform, base
from ..definition.models import ModelName
from ..definition.placement import MigProfile
from ..definition.policies import SHIPPED, PolicyName
from ..model_keys import Key, Model, hint_of, keys_of

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
    (PolicyName, f"{', '.join(f'`{name}`' for name in SHIPPED)}, or the name of one of your own"),
    (base.Cidr, "address range such as `10.0.0.0/8`"),
)


@dataclass(frozen=True)
class Part:
    """A place in the file that has keys of its own."""

    path: Path
    key: Key | None  # The key at which it stands; None for a part that stands at several places.
    models: tuple[Model, ...]
    tag: str | None

    @property
    def title(self) -> str:
        """Its path in words."""
        return " › ".join(self.path)

    @property
    def anchor(self) -> str:
        """What links to it point at."""
        return "-".join(self.path).replace(" ", "-")


def keys(model: Model) -> list[Key]:
    """Return the keys of a part: its name and kind, then those that must be there, then the others."""
    first = {"name": 0, "kind": 1, "mode": 1, "cloud": 1}
    return sorted(keys_of(model).values(), key=lambda key: (first.get(key.name, 2), not key.field.is_required()))


def outline() -> list[Part]:
    """Return every part of a definition in the order of the file, and then those that stand at several places."""
    parts: list[Part] = []
    shared = _shared()
    top: tuple[Model, ...] = (Platform, Header)
    for model in top:
        for key in keys_of(model).values():
            parts += _below(Part((key.name,), key, key.models, key.tag), shared)
    for model in shared:
        parts += _below(Part((words_of_class(model),), None, (model,), None), shared)
    return parts


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


def words(annotation: Any) -> str:
    """Return the type of a plain value in words, in Markdown."""
    for name, known in NAMED_TYPES:
        if annotation == known:
            return f"text: [{name}](#{anchor_of(name)})"
    for known, such_as in _SUCH_AS:
        if annotation == known:
            return such_as
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *beside = (each for each in arguments if each != base.NOT_IN_VALUES)
        whole = Annotated[(inner, *beside)] if beside else inner
        return _bounded(inner, annotation) if whole == annotation else words(whole)
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


def pattern_of(annotation: Any) -> str:
    """Return the regular expression that a text must match."""
    return str(TypeAdapter(annotation).json_schema()["pattern"])


def _bounded(inner: Any, annotation: Any) -> str:
    said = words(inner)
    if get_origin(inner) in (Union, UnionType):
        return said
    if hint := hint_of(annotation):
        return f"text: {hint}" if " " in hint else f"text such as `{hint}`"
    bounds = TypeAdapter(annotation).json_schema()
    if "pattern" in bounds:
        return f"text matching `{bounds['pattern']}`"
    if least := bounds.get("minItems") or bounds.get("minProperties"):
        return f"{said}; at least {'one' if least == 1 else least}"
    if "exclusiveMinimum" in bounds:
        return f"{said} between {bounds['exclusiveMinimum']} and {bounds['exclusiveMaximum']}"
    if "minimum" in bounds:
        return f"{said} {bounds['minimum']}–{bounds['maximum']}"
    return said


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
        for key in keys_of(model).values():
            if key.models and key.name not in done and not (len(key.models) == 1 and key.models[0] in shared):
                done.add(key.name)
                parts += _below(Part((*part.path, key.name), key, key.models, key.tag), shared)
    return parts
