"""Two commands about the definition alone: `check` says what is in it, `environments` what clients are told of it."""

from pathlib import Path

from stacks.clients import environments_text
from stacks.command import Outcome
from stacks.problems import advisory_text, counted, escaped, listed
from stacks.stack import Definition
from stacks.validate import read_definition

from .files import write_atomically


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


def tell_clients(path: Path, out: Path | None, outcome: Outcome) -> None:
    """Print what clients are told of a definition (JSON), or write it to a file."""
    definition = read_definition(path)
    text = environments_text(definition)
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text)
    outcome.text = f"{escaped(str(out))} is written"
    names = ", ".join(environment.name for environment in definition.header.environments)
    print(f"{escaped(str(out))}: written, for {names}; clients read it where TIDEGATE_ENVIRONMENTS names it")
