"""`up --cluster`: brings the stacks of one cluster up there, with the engine that is there."""

from collections.abc import Sequence
from pathlib import Path

from stacks.problems import escaped
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import engines
from .choose import context_of, on_cluster
from .errors import NO_ENGINE, Outcome, RolloutError
from .terminal import in_shell, make, note


def bring_up(path: Path, context: str, only: str | None, out: Path, outcome: Outcome) -> None:
    """Bring up the stacks that live in a cluster, one after the other; stop at the first that fails."""
    definition = read_definition(path)
    stacks = on_cluster(definition, context, only)
    context = context_of(stacks[0].data_plane)
    refuse_tags(definition, stacks)
    engine = engines.find_engine()
    if engine is None:
        raise RolloutError(no_engine(stacks, context, path, only, out), NO_ENGINE)
    names = ", ".join(stack.name for stack in stacks)
    note(f"Bringing up {names} in {escaped(context)} with {engine.title} …")
    for done, stack in enumerate(stacks):
        outcome.text = f"stack {stack.name} may be partly up; run the same command again"
        code = engine.up(stack, path)
        if code:
            rest = ", ".join(stack.name for stack in stacks[done + 1 :])
            raise RolloutError(
                f"stack {stack.name} is not up: {engine.title} ended with exit code {code}; what it says stands above."
                + (f"\nNot tried: {rest}." if rest else "")
            )
    print(f"Up in {escaped(context)}: {names}.")


def refuse_tags(definition: Definition, stacks: Sequence[Stack]) -> None:
    """Raise RolloutError where a stack that is not local has images without a digest."""
    missing: dict[str, list[str]] = {}
    for stack in stacks:
        for image in stack.platform.images:
            if not stack.environment.local and definition.lock.digest(image.reference) is None:
                missing.setdefault(image.reference, []).append(stack.name)
    if missing:
        lines = [f"  {image} ({', '.join(names)})" for image, names in missing.items()]
        raise RolloutError(
            "These images have no digest in images.lock:\n"
            + "\n".join(lines)
            + "\nA tag can be moved, and then what runs is not what was tested; only an environment with\n"
            "`local: true` may run one. Nothing was changed. Where the registries can be reached, run\n"
            f"  {make('pin', DEFINITION=definition.file)}\nand commit images.lock."
        )


def no_engine(stacks: Sequence[Stack], context: str, path: Path, only: str | None, out: Path) -> str:
    """Return what to do where there is no engine."""
    applies = "\n".join(
        f"      kubectl --context {in_shell(context)} apply --server-side -f {in_shell(out / stack.name)}/"
        for stack in stacks
    )
    return (
        "There is no engine here to bring a stack up with; nothing was changed. Either\n"
        "  - install Pulumi (https://www.pulumi.com/docs/install), and run this again; or\n"
        "  - apply the rendered files:\n"
        f"      {make('up', DEFINITION=path, OUT=out, STACK=only)}\n{applies}\n"
        "Helm can do it too, as soon as there is a chart."
    )
