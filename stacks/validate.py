"""Turns a loaded document into the typed definition, or reports every problem.

It checks the form first: keys, types and rules about one item. Then it applies rules to each stack with a valid form,
and rules about all stacks together if every form is valid.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from . import rules
from .definition import DataPlane, Environment, Header, Platform
from .definition.base import did_you_mean, nearest
from .images_lock import ImagesLock, read_images_lock
from .load import Document, frozen, load
from .model_keys import models_in
from .overlays import Layers
from .overlays import Path as TreePath
from .problems import DefinitionError, Position, Problem, listed, shown
from .schema_errors import problems_from
from .stack import Definition, Stack

Checked = TypeVar("Checked", bound=BaseModel)

OVERLAID: Mapping[str, type[BaseModel]] = {"environments": Environment, "dataPlanes": DataPlane}

Platforms = Mapping[tuple[str, str | None], tuple[Document, Platform | None]]
"""Platforms after merging all overlays, or None if the form is not valid, each with its merged document.

The key has the names of the environment and of the data plane, or None for a data plane without an overlay.
"""


def _keys(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(str(part.alias) for part in model.model_fields.values())


PLATFORM_KEYS = _keys(Platform)
HEADER_KEYS = _keys(Header)


def read_definition(path: Path | str) -> Definition:
    """Load and validate a definition and the `images.lock` next to it. Raises DefinitionError with every problem."""
    document = load(path)
    problems: list[Problem] = []
    lock = ImagesLock()
    try:
        lock = read_images_lock(Path(path).parent)
    except DefinitionError as error:
        problems = error.problems
    try:
        definition = validate(document, lock)
    except DefinitionError as error:
        problems += error.problems
    if problems:
        raise DefinitionError(problems)
    return definition


def validate(document: Document, lock: ImagesLock) -> Definition:
    """Check a document and return its definition. Raises DefinitionError with every problem."""
    unknown = [*_unknown_keys(document)]
    problems = [*unknown, *_names_twice(document, document.tree)]
    header = _checked(Header, _header_tree(document), document, problems)
    platforms = _platforms(document, problems)
    if header is None:
        raise DefinitionError(_errors(problems))
    definition = Definition(document, header, _stacks(header, platforms, document.file), lock)
    has_its_form = not problems
    of_header = rules.violations(rules.HEADER_RULES, header, document)
    problems += of_header
    if not unknown:  # Problems that follow from a mistyped key can be anywhere.
        problems += _of_stacks(definition)
    if has_its_form and not _errors(of_header):
        problems += rules.violations(rules.DEFINITION_RULES, definition)
    if errors := _errors(problems):
        raise DefinitionError(errors)
    return replace(definition, advisories=tuple(_once(problems)))


def _errors(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in _once(problems) if problem.severity == "error"]


def _once(problems: Iterable[Problem]) -> list[Problem]:
    """Return each problem once, even if YAML aliases lead to one place by several paths."""
    return [*{replace(problem, path=""): problem for problem in reversed([*problems])}.values()][::-1]


def _of_stacks(definition: Definition) -> Iterator[Problem]:
    """Yield the problems of stacks. Problems of several stacks that differ only in names and places are one problem. A
    problem of the common part names its stacks if not all have it."""
    found: dict[Problem, dict[Problem, list[Stack]]] = {}
    for stack in definition.stacks:
        names = re.compile(f'"({stack.environment.name}|{stack.data_plane.name})"')
        for problem in dict.fromkeys(rules.violations(rules.STACK_RULES, stack)):
            of_any = replace(problem, where=None, what=names.sub("", problem.what), why=names.sub("", problem.why))
            alike = found.setdefault(of_any if problem.severity == "error" else problem, {})
            alike.setdefault(problem, []).append(stack)
    for of_any, alike in found.items():
        (problem, stacks), *others = alike.items()
        names_stack = problem.severity == "advisory" or replace(problem, where=None) != of_any
        places = ""
        if others:
            places = f"Likewise in {listed(f'{each.name} ({it.where})' for it, more in others for each in more)}."
        elif not (names_stack or len(stacks) == len(definition.stacks) or _is_in_overlay(problem, definition.document)):
            places = f"Only in {listed(each.name for each in stacks)}."
        yield replace(problem, why="\n".join(filter(None, (problem.why, places))))


def _is_in_overlay(problem: Problem, document: Document) -> bool:
    line = problem.where.line if isinstance(problem.where, Position) else 0
    starts = sorted((part.key.line, key) for key, part in document.root.parts.items())
    return next((key for start, key in reversed(starts) if start <= line), "") in OVERLAID


def _platforms(document: Document, problems: list[Problem]) -> Platforms:
    """Merge the overlays of every environment and data plane. Adds the problems of any of them to `problems`."""
    layers = Layers(document)
    common = layers.laid((), PLATFORM_KEYS)
    environments = {
        name: layers.laid(("environments", index), PLATFORM_KEYS, common)
        for name, index in _indexes(document, "environments").items()
    }
    sources: dict[tuple[str, str | None], Document] = {}
    for plane, index in _indexes(document, "dataPlanes").items():
        hosted = document.get(("dataPlanes", index, "environments"))
        for name in hosted if isinstance(hosted, list) else ():
            if isinstance(name, str) and name in environments:
                if PLATFORM_KEYS.isdisjoint(document.get(("dataPlanes", index))):
                    sources[name, None] = environments[name]
                else:
                    sources[name, plane] = layers.laid(("dataPlanes", index), PLATFORM_KEYS, environments[name])
    hosted_names = {name for name, _ in sources}
    sources |= {(name, None): source for name, source in environments.items() if name not in hosted_names}
    if not document.get(("environments",)):  # An environment could add missing keys.
        sources["", None] = common
    problems += layers.vain_removals
    found = {}
    every: list[Problem] = []
    for key, source in sources.items():
        mistakes: list[Problem] = []
        found[key] = source, _checked(Platform, source.tree, source, mistakes)
        new: list[str] = []  # Items whose name can have a typo: all their missing keys are one problem.
        given: set[str] = set()
        for problem in mistakes:
            advice, is_typo = layers.advice(problem.where) if problem.is_missing else ("", False)
            new += [f"{problem.path}."] if advice else []
            is_reported = advice in given or (problem.is_missing and problem.path.startswith(tuple(new)))
            given |= {advice} if is_typo else set()
            if not is_reported:
                every.append(replace(problem, do=advice or problem.do))
    # Overlays of a part whose key has a typo seem to lack the keys of that part.
    is_mistyped = any(each.what.startswith("unknown key") for each in (*problems, *every))
    problems += (each for each in every if not (is_mistyped and each.is_missing and _is_in_overlay(each, document)))
    return found


def _indexes(document: Document, section: str) -> dict[str, int]:
    """Return the indexes of the items of a section by name. The first item with a name counts."""
    items = document.tree.get(section)
    found: dict[str, int] = {}
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            found.setdefault(item["name"], index)
    return found


def _stacks(header: Header, platforms: Platforms, file: str) -> tuple[Stack, ...]:
    environments = {environment.name: environment for environment in header.environments}
    stacks = []
    for plane in sorted(header.data_planes, key=lambda plane: plane.wave):
        for name in plane.environments:
            if found := platforms.get((name, plane.name)) or platforms.get((name, None)):
                source, platform = found
                if platform is not None and name in environments:
                    origin = environments.get(environments[name].promotion.source or "")
                    stacks.append(Stack(environments[name], plane, platform, source, origin, definition=file))
    return tuple(stacks)


def _names_twice(document: Document, tree: Any, path: TreePath = ()) -> Iterator[Problem]:
    """Report names that one list has twice, because overlays merge items by name."""
    seen: set[str] = set()
    for step, item in tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else ():
        name = item.get("name") if isinstance(tree, list) and isinstance(item, Mapping) else None
        if isinstance(name, str) and name in seen:
            section = str(path[-1]) if path else ""
            why = f"Both would be served at /v2/models/{name}." if section == "models" else ""
            what, do = f'{section} has the name "{name}" twice', "Rename one, or remove it."
            yield document.problem((*path, step, "name"), what, why, do, at="value")
        seen |= {name} if isinstance(name, str) else set()
        yield from _names_twice(document, item, (*path, step))


def _checked(model: type[Checked], tree: Any, source: Document, problems: list[Problem]) -> Checked | None:
    try:
        return model.model_validate(frozen(tree))
    except ValidationError as error:
        problems += problems_from(error, source, model)
        return None


def _header_tree(document: Document) -> dict[str, Any]:
    """Return the header's part of a document, without overlays and unknown keys, which other functions check."""
    header = Layers(document).laid((), HEADER_KEYS).tree
    for section, model in OVERLAID.items():
        if isinstance(items := header.get(section), list):
            header[section] = [
                {key: item[key] for key in item if key in _keys(model)} if isinstance(item, Mapping) else item
                for item in items
            ]
    return header


def _unknown_keys(document: Document) -> Iterator[Problem]:
    """Report unknown keys of the common part, of environments and of data planes. Also report unknown keys below them
    whose value is null: merging removes them before the form is checked."""
    yield from _unknown(document, document.tree, (), (Header, Platform))
    for section, model in OVERLAID.items():
        items = document.tree.get(section)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield from _unknown(document, item, (section, index), (model, Platform))


def _unknown(
    document: Document, tree: Any, path: TreePath, models: Sequence[type[BaseModel]], *, nulls: bool = False
) -> Iterator[Problem]:
    """Yield the unknown keys of a part, and those below it whose value is null. With `nulls`, yield only the latter."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _unknown(document, item, (*path, index), models, nulls=True)
    known = sorted({key for model in models for key in _keys(model)})
    for key, value in tree.items() if models and isinstance(tree, Mapping) else ():
        if key not in known and (value is None or not nulls):
            do = f"{did_you_mean(nearest(key, known))}Keys here: {', '.join(known)}."
            yield document.problem((*path, key), f"unknown key {shown(key)}", do=do)
        elif path or key not in OVERLAID:
            fields = (field for model in models for field in model.model_fields.values() if field.alias == key)
            below = [model for field in fields for model in models_in(field.annotation)]
            yield from _unknown(document, value, (*path, key), below, nulls=True)
