"""`check`: the definition, and nothing else; what is in it, and what it is advised to change."""

from collections.abc import Collection, Iterable
from pathlib import Path

from stacks.problems import Problem, escaped, in_order, listed
from stacks.stack import Definition
from stacks.validate import read_definition

MOST_ALIKE = 6
"""Places that a collapsed advisory names."""


def check_definition(path: Path) -> None:
    """Read a definition and say in a line what is in it; raise DefinitionError with everything that is wrong."""
    definition = read_definition(path)
    print(f"{escaped(definition.file)}: ok – {contents(definition)}")
    if text := advisory_text(definition.advisories):
        print(text)


def contents(definition: Definition) -> str:
    """Return what a definition holds: `3 stacks (dev-lab, prod-east, prod-west), 2 servers, 5 models`."""
    platforms = [stack.platform for stack in definition.stacks]
    servers = {server.name for platform in platforms for server in platform.servers}
    models = {model.name for platform in platforms for model in platform.models}
    names = listed((stack.name for stack in definition.stacks), most=8)
    return f"{counted(definition.stacks, 'stack')} ({names}), {counted(servers, 'server')}, {counted(models, 'model')}"


def counted(things: Collection[object], name: str) -> str:
    """Return `1 stack`, `3 stacks`."""
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def advisory_text(advisories: Iterable[Problem]) -> str:
    """Return a paragraph for each kind of advisory; those with the same reason and remedy are of one kind."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for problem in in_order(advisories):
        kinds.setdefault((problem.why, problem.do), []).append(problem)
    return "\n".join(str(alike[0]) if len(alike) == 1 else _collapsed(alike) for alike in kinds.values())


def _collapsed(alike: list[Problem]) -> str:
    first, *lines = str(alike[0]).split("\n")
    rest = [str(problem).split("\n", 1)[0] for problem in alike[1:MOST_ALIKE]]
    more = [f"… and {len(alike) - MOST_ALIKE} more like these"] if len(alike) > MOST_ALIKE else []
    return "\n".join([first, *rest, *more, *lines])
