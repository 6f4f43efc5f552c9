"""`up --cluster`: brings the stacks of one cluster up there, with an engine."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stacks.command import NO_ENGINE, CommandError, Outcome
from stacks.problems import advisory_text, escaped
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import engines
from .contexts import LOCAL, context_of, on_cluster, refuse_tags
from .engines import Bundle, Engine
from .guardrails import enforce
from .kubectl import Kubectl
from .render import render
from .terminal import console, in_shell, make, note


@dataclass(frozen=True)
class Request:
    """What somebody wants to be brought up, or taken down, where and with what."""

    definition: Path
    context: str
    """A kubeconfig context, a data plane, or `local`."""
    stack: str | None = None
    engine: str | None = None
    adopt: bool = False
    """Whether to take over a stack that another engine brought up."""
    out: Path = Path("build/rendered")

    @property
    def is_local(self) -> bool:
        """Whether this is about the cluster on this machine."""
        return self.context == LOCAL


def bring_up(request: Request, outcome: Outcome) -> None:
    """Bring up the stacks that live in a cluster, one after the other; stop at the first that fails."""
    definition = read_definition(request.definition)
    if request.is_local:
        _bring_up_here(request, definition, outcome)
        return
    stacks = on_cluster(definition, request.context, request.stack)
    refuse_tags(definition, stacks)
    Kubectl(context_of(stacks[0].data_plane)).ask_ahead()
    bundles, engine = _checked(request, definition, stacks)
    _up(bundles, engine, outcome)


def _bring_up_here(request: Request, definition: Definition, outcome: Outcome) -> None:
    """Bring up dev and prod in the local cluster, and show what landed where."""
    from . import local

    stacks = local.local_stacks(definition, request.stack)
    if any(definition.lock.digest(image.reference) is None for stack in stacks for image in stack.platform.images):
        note("Images without a digest are accepted here: the simulated nodes run none.")
    bundles, engine = _checked(request, definition, [here(stack) for stack in stacks])
    cluster = local.start_local(definition, stacks)
    os.environ.update(cluster.environment())
    _up(bundles, engine, outcome)
    console().print(local.placement_table(cluster, stacks))
    print(local.how_to_look_around(cluster))


def here(stack: Stack) -> Stack:
    """Return a stack as it stands in the local cluster."""
    return replace(stack, data_plane=stack.data_plane.model_copy(update={"context": LOCAL}))


def _checked(request: Request, definition: Definition, stacks: Sequence[Stack]) -> tuple[Sequence[Bundle], Engine]:
    """Return what is to be brought up, and with what, once nothing forbids it; raise CommandError."""
    rendering = [render(stack, definition.lock, definition.file) for stack in stacks]
    for text in (
        advisory_text(definition.advisories) if not request.is_local else "",
        enforce(rendering, definition, outcome="nothing was changed", local_cluster=request.is_local),
    ):
        if text:
            note(text)
    engine = _engine(request, stacks, context_of(stacks[0].data_plane))
    bundles = [
        Bundle(stack, rendered, definition.lock, request.definition)
        for stack, rendered in zip(stacks, rendering, strict=True)
    ]
    return bundles, engine


def _up(bundles: Sequence[Bundle], engine: Engine, outcome: Outcome) -> None:
    stacks = [bundle.stack for bundle in bundles]
    context = context_of(stacks[0].data_plane)
    names = ", ".join(stack.name for stack in stacks)
    note(f"Bringing up {names} in {escaped(context)} with {engine.title} …")
    unchanged = []
    for done, (stack, bundle) in enumerate(zip(stacks, bundles, strict=True)):
        outcome.text = f"stack {stack.name} may be partly up; run the same command again"
        try:
            if not engine.up(bundle):
                unchanged.append(stack.name)
        except CommandError as error:
            rest = ", ".join(stack.name for stack in stacks[done + 1 :])
            raise CommandError(
                f"stack {stack.name} is not up: {error}" + (f"\nNot tried: {rest}." if rest else ""), error.code
            ) from None
    for name in unchanged:
        print(f"Nothing changed: {name} is as declared.")
    print(f"Up in {escaped(context)}: {names}.")


def _engine(request: Request, stacks: Sequence[Stack], context: str) -> Engine:
    try:
        return engines.find_engine(request.engine, adopt=request.adopt)
    except CommandError as error:
        if error.code != NO_ENGINE:
            raise
        files = [
            f"      kubectl --context {in_shell(context)} apply --server-side -f {in_shell(request.out / stack.name)}/"
            for stack in stacks
        ]
        render_first = make("up", DEFINITION=request.definition, OUT=request.out, STACK=request.stack)
        lines = [
            f"There is no engine here to bring a stack up with; nothing was changed: {error}",
            "  Either install Pulumi (https://www.pulumi.com/docs/install) or Helm (https://helm.sh/docs/intro/install),",
            "  and run this again; or apply the rendered files:",
            f"      {render_first}",
            *files,
        ]
        raise CommandError("\n".join(lines), NO_ENGINE) from None
