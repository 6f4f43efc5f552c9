"""Generate the templates: run the components once with placeholders, and write the objects that they declare."""

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from components import Environment, EnvironmentArgs
from components.evaluate import declared
from components.values import RECORDER

from .placeholders import placeholder
from .recording import Opened, Recording, Value
from .writers import YamlWriter, action

HELPERS = "_helpers.tpl"

_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class _Seen:
    """A declared resource, with its component and the guards around it."""

    type: str
    name: str
    owner: Any
    opened: tuple[Opened, ...]


def chart_templates() -> dict[str, str]:
    """Return the chart's templates: file name below `templates/` → text."""
    return templates_of(lambda args: Environment("tidegate", args))


def templates_of(program: Callable[[EnvironmentArgs], object]) -> dict[str, str]:
    """Return the templates of the objects that a program declares, one file for each of its components."""
    recording = Recording()
    root = placeholder(recording, Value("$.Values", EnvironmentArgs))
    with _watched(recording) as seen:
        objects = {(kind, name): item for kind, name, item in declared(lambda: program(root), with_outputs=False)}
    files: dict[str, list[str]] = {}
    below: dict[str, tuple[Opened, ...]] = {}
    for one in seen:
        name = re.sub(r"(?<!^)(?=[A-Z])", "-", one.owner.__name__).lower() + ".yaml"
        lines = files.setdefault(name, _heading(one.owner))
        lines += [*_between(below.get(name, ()), one.opened), "---"]
        below[name] = one.opened
        item = objects[one.type, one.name]
        holds = [guard.opening.removeprefix("if ") for guard in one.opened]
        lines += YamlWriter(recording, holds).mapping(item, 0)
    for name, lines in files.items():
        lines += _between(below[name], ())
    if recording.helpers:
        files[HELPERS] = "\n\n".join(
            f'{{{{- define "{name}" -}}}}\n{text}\n{{{{- end }}}}' for name, text in sorted(recording.helpers.items())
        ).split("\n")
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


@contextmanager
def _watched(recording: Recording) -> Iterator[list[_Seen]]:
    """Record every resource when it is declared."""
    seen: list[_Seen] = []
    original = pulumi.CustomResource.__init__

    def watched(self: Any, t: str, name: str, props: Any = None, opts: Any = None, *more: Any, **named: Any) -> None:
        owner = type(opts.parent) if opts is not None and opts.parent is not None else Environment
        seen.append(_Seen(t, name, owner, tuple(recording.opened)))
        original(self, t, name, props, opts, *more, **named)

    token = RECORDER.set(recording)
    pulumi.CustomResource.__init__ = watched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        pulumi.CustomResource.__init__ = original  # type: ignore[method-assign]
        RECORDER.reset(token)


def _between(before: tuple[Opened, ...], now: tuple[Opened, ...]) -> list[str]:
    """Return the lines between two objects: the ends of guards that do not enclose the second, and new guards."""
    common = 0
    while common < min(len(before), len(now)) and before[common] == now[common]:
        common += 1
    return [action("end")] * (len(before) - common) + [action(guard.opening) for guard in now[common:]]


def _heading(owner: Any) -> list[str]:
    file = Path(inspect.getfile(owner)).relative_to(_ROOT).as_posix()
    return [
        "{{- /*",
        f"Generated from {file} by `make chart`. Do not edit.",
        "",
        *inspect.cleandoc(owner.__doc__ or "").split("\n"),
        "*/}}",
    ]
