"""`down`: takes the stacks of one cluster down, all but their datasets, and says what stays."""

import os
from collections.abc import Sequence

from stacks.command import WRONG_INPUT, CommandError, Outcome
from stacks.problems import escaped
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from . import engines
from .cluster import Request, here
from .contexts import context_of, no_cluster, on_cluster
from .engines import Bundle
from .engines.ownership import owner_of
from .kubectl import Kubectl
from .live import INSTANCE, KEPT, PART_OF, namespace_of
from .render import render
from .terminal import in_shell, make, note


def take_down(request: Request, outcome: Outcome, *, sure: bool = False) -> None:
    """Take stacks down; those of production only for somebody who is sure."""
    if request.is_local and request.stack is None:
        from . import local

        gone = local.stop_local()
        print("The local cluster is gone, with all that was in it." if gone else "There is no local cluster.")
        return
    definition = read_definition(request.definition)
    if not request.context:
        raise no_cluster(definition)
    stacks: Sequence[Stack]
    if request.is_local:
        from . import local

        stacks = [here(stack) for stack in local.local_stacks(definition, request.stack)]
        cluster = local.running_local()
        if cluster is None:
            if what := local.incomplete():
                how = make("down", CLUSTER=request.context)
                raise CommandError(f"{what}, so that no stack can be taken down alone. Take all of it down:\n  {how}")
            print("There is no local cluster.")
            return
        os.environ.update(cluster.environment())
    else:
        stacks = on_cluster(definition, request.context, request.stack)
        _ask_for_certainty(request, stacks, sure)
    kube = Kubectl(context_of(stacks[0].data_plane))
    for stack in stacks:
        _down(request, definition, stack, kube, outcome)


def _ask_for_certainty(request: Request, stacks: Sequence[Stack], sure: bool) -> None:
    dear = [stack.name for stack in stacks if stack.environment.production]
    if dear and not sure:
        command = make("down", CLUSTER=request.context, DEFINITION=request.definition, STACK=request.stack, YES="1")
        raise CommandError(
            f"{', '.join(dear)} {'is' if len(dear) == 1 else 'are'} production: every model there stops being served."
            f" Nothing was changed.\nIf that is meant: {command}",
            WRONG_INPUT,
        )


def _down(request: Request, definition: Definition, stack: Stack, kube: Kubectl, outcome: Outcome) -> None:
    owner = owner_of(kube, stack)
    if owner is None:
        print(f"{stack.name} is not there: {escaped(kube.context)} has no namespace {stack.namespace}.")
        return
    # Whoever brought it up takes it down, whatever else there is on this machine.
    wanted = request.engine or (owner.engine if owner.engine in engines.FINDERS else None)
    engine = engines.find_engine(wanted)
    note(f"Taking {stack.name} in {escaped(kube.context)} down with {engine.title} …")
    outcome.text = f"stack {stack.name} may be partly down; run the same command again"
    rendered = render(stack, definition.lock, definition.file)
    try:
        engine.down(Bundle(stack, rendered, definition.lock, request.definition))
    except CommandError as error:
        raise CommandError(f"stack {stack.name} is not down: {error}", error.code) from None
    print(_report(stack, kube, what_stays(stack, kube)))


def what_stays(stack: Stack, kube: Kubectl) -> dict[str, list[str]]:
    """Return what a cluster still has of a stack that was taken down: names by kind."""
    selector = f"{PART_OF}=tidegate,{INSTANCE}={stack.environment.name}"
    names: dict[str, list[str]] = {kind: [] for kind in KEPT}
    for item in kube.find([f"{kind.lower()}s" for kind in KEPT], "-A", "-l", selector):
        if namespace_of(item) == stack.namespace:
            names[item["kind"]].append(item["metadata"]["name"])
    return names


def _report(stack: Stack, kube: Kubectl, stays: dict[str, list[str]]) -> str:
    lines = [f"Down in {escaped(kube.context)}: {stack.name}."]
    volumes, namespaces = stays["PersistentVolume"], stays["Namespace"]
    kept = [f"  {kind} {name}" for kind in KEPT[1:] for name in stays[kind]]
    kept += [f"  Namespace {name}, which holds the claims" for name in namespaces]
    if kept:
        kubectl = f"  kubectl --context {in_shell(kube.context)} delete"
        lines += ["Its datasets stay, and the next `make up` finds them:", *kept]
        lines += ["To delete them for good (what lies on the storage itself stays there):"]
        lines += [f"{kubectl} namespace {in_shell(name)}" for name in namespaces]
        lines += [f"{kubectl} persistentvolume {' '.join(map(in_shell, volumes))}"] if volumes else []
    return "\n".join(lines)
