"""`check`: the definition, and nothing else."""

from collections.abc import Collection
from pathlib import Path

from stacks.problems import escaped, listed
from stacks.stack import Definition
from stacks.validate import read_definition

from .advisories import advisory_text


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
