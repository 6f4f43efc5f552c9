"""A change of the definition as people paste it: its text, its place, and whether `make check` takes it."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stacks.load import Document, load
from stacks.overlays import Layers
from stacks.problems import DefinitionError
from stacks.stack import Definition
from stacks.validate import validate

from .remedies import Subject


def overlay(subject: Subject, change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change as a part of the whole definition: laid over the environment that the pool is in."""
    return {"environments": [{"name": subject.stack.environment.name, **change}]}


def overlay_text(subject: Subject, change: Mapping[str, Any]) -> str:
    """Return the same as YAML."""
    return yaml.safe_dump(overlay(subject, change), sort_keys=False, default_flow_style=False, width=100)


def place(definition: Definition, subject: Subject) -> str:
    """Return where it is to be pasted, in words."""
    name = subject.stack.environment.name
    index = [each.name for each in definition.header.environments].index(name)
    where = definition.document.position(("environments", index))
    planes = [each.data_plane.name for each in definition.stacks if each.environment.name == name]
    every = f"; it holds on {', '.join(planes)}" if len(planes) > 1 else ""
    return f"{where.file}:{where.line}, over what the environment {name} has{every}"


def changed(definition: Definition, subject: Subject, change: Mapping[str, Any]) -> Definition:
    """Return the definition with the change; raises DefinitionError with what `make check` would say of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "change.yaml"
        file.write_text(overlay_text(subject, change), "utf-8")
        over = load(file)
    merged = Layers(definition.document).merged(definition.document.root, over.root)
    whole = Document(merged.value, definition.document.file, merged)
    return validate(whole, definition.lock, definition.lock_document)


def why_refused(definition: Definition, subject: Subject, change: Mapping[str, Any]) -> list[str]:
    """Return what `make check` would say against the definition with the change; nothing where it takes it."""
    try:
        changed(definition, subject, change)
    except DefinitionError as error:
        return [problem.what for problem in error.problems]
    return []
