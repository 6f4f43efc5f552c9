"""Turns a loaded document into the typed definition, or into every reason why it is none."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from . import rules
from .definition import DataPlane, Environment, Header, Platform
from .definition.models import Model
from .definition.servers import Pool, Server
from .images_lock import ImagesLock, read_images_lock
from .load import Document, load
from .overlays import Layer, Layered, without_nulls
from .overlays import Path as TreePath
from .problems import DefinitionError, Problem
from .schema_errors import problems_from
from .trees import frozen

Checked = TypeVar("Checked", bound=BaseModel)
Source = Document | Layered

OVERLAID: Mapping[str, type[BaseModel]] = {"environments": Environment, "dataPlanes": DataPlane}


def _keys(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(str(part.alias) for part in model.model_fields.values())


PLATFORM_KEYS = _keys(Platform)
HEADER_KEYS = _keys(Header)


@dataclass(frozen=True)
class Stack:
    """One environment on one data plane, with all overlays laid."""

    environment: Environment
    data_plane: DataPlane
    platform: Platform
    source: Layered = field(repr=False, compare=False)
    """Where each value of `platform` came from."""

    @property
    def name(self) -> str:
        """`<environment>-<data plane>`."""
        return f"{self.environment.name}-{self.data_plane.name}"

    @property
    def namespace(self) -> str:
        """Namespace of the environment."""
        return self.environment.namespace_name

    def models_of(self, server: Server, pool: Pool) -> tuple[Model, ...]:
        """Return the models that a pool serves."""
        return tuple(
            model
            for model in self.platform.models
            if model.server == server.name and (model.pool or server.pools[0].name) == pool.name
        )


@dataclass(frozen=True)
class Definition:
    """A definition that can be used: its stacks, in the order of a rollout."""

    document: Document = field(repr=False, compare=False)
    header: Header
    stacks: tuple[Stack, ...]
    lock: ImagesLock
    lock_document: Document | None = field(repr=False, compare=False)
    advisories: tuple[Problem, ...] = ()

    @property
    def file(self) -> str:
        """File of the definition, as it was given."""
        return self.document.file


def read_definition(path: Path | str) -> Definition:
    """Load and validate a definition and the `images.lock` beside it. Raises DefinitionError with every problem."""
    lock, lock_document = read_images_lock(Path(path).parent)
    return validate(load(path), lock, lock_document)


def validate(document: Document, lock: ImagesLock, lock_document: Document | None = None) -> Definition:
    """Check a document and return the definition in it; raise DefinitionError with every problem found."""
    problems = _unknown_keys(document)
    header = _checked(Header, _header_tree(document.tree), document, problems)
    stacks: list[Stack] = []
    if header is not None:
        problems += rules.check_header(header, document)
        stacks = _stacks(header, document, problems)
    if header is None or problems:
        raise DefinitionError(dict.fromkeys(problems))
    definition = Definition(document, header, tuple(stacks), lock, lock_document)
    found = list(dict.fromkeys(rules.check(definition)))
    if any(problem.severity == "error" for problem in found):
        raise DefinitionError(found)
    return Definition(document, header, tuple(stacks), lock, lock_document, tuple(found))


def _stacks(header: Header, document: Document, problems: list[Problem]) -> list[Stack]:
    """Lay the overlays of every environment and data plane; what is wrong in any of them is added to `problems`."""
    indexes = {environment.name: index for index, environment in enumerate(header.environments)}
    common = (Layer(document), _only(document.tree, PLATFORM_KEYS))
    stacks = []
    known: dict[tuple[int, int | None], tuple[Layered, Platform | None]] = {}
    for plane_index, plane in sorted(enumerate(header.data_planes), key=lambda item: (item[1].wave, item[0])):
        plane_layer = _overlay(document, "dataPlanes", plane_index)
        for name in plane.environments:
            if name not in indexes:
                continue
            key = (indexes[name], plane_index if plane_layer[1] else None)
            if key not in known:
                layers = [common, _overlay(document, "environments", indexes[name])]
                source = Layered([*layers, plane_layer] if plane_layer[1] else layers)
                known[key] = (source, _checked(Platform, source.tree, source, problems))
            source, platform = known[key]
            if platform is not None:
                stacks.append(Stack(header.environments[indexes[name]], plane, platform, source))
    return stacks


def _overlay(document: Document, section: str, index: int) -> tuple[Layer, dict[str, Any]]:
    layer = Layer(document, (section, index))
    return layer, _only(layer.tree, PLATFORM_KEYS)


def _checked(model: type[Checked], tree: Any, source: Source, problems: list[Problem]) -> Checked | None:
    try:
        return model.model_validate(frozen(tree))
    except ValidationError as error:
        problems += problems_from(error, source, model)
        return None


def _only(tree: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: tree[key] for key in tree if key in keys}


def _header_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header's part of a document, without overlays and unknown keys, which are looked at elsewhere."""
    header = _only(without_nulls(tree), HEADER_KEYS)
    for section, model in OVERLAID.items():
        if isinstance(items := header.get(section), list):
            header[section] = [_only(item, _keys(model)) if isinstance(item, Mapping) else item for item in items]
    return header


def _unknown_keys(document: Document) -> list[Problem]:
    """Report keys that may stand neither in the common part nor in an environment or data plane that overlays it."""
    problems = _unknown(document, (), PLATFORM_KEYS | HEADER_KEYS)
    for section, model in OVERLAID.items():
        items = document.tree.get(section)
        for index in range(len(items) if isinstance(items, list) else 0):
            problems += _unknown(document, (section, index), PLATFORM_KEYS | _keys(model))
    return problems


def _unknown(document: Document, path: TreePath, known: frozenset[str]) -> list[Problem]:
    mapping = document.get(path)
    problems = []
    for key in mapping if isinstance(mapping, Mapping) else ():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            do = f'did you mean "{near[0]}"? ' if near else ""
            keys = ", ".join(sorted(known))
            problems.append(document.problem((*path, key), f'unknown key "{key}"', do=f"{do}Keys here: {keys}."))
    return problems
