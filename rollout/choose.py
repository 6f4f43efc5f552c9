"""Which stacks a command is about."""

from stacks.definition import DataPlane
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack

from .errors import WRONG_INPUT, RolloutError, none_such, unknown

LOCAL = "local"
"""The context of the cluster on this machine, `make up CLUSTER=local`."""


def chosen(definition: Definition, name: str | None) -> tuple[Stack, ...]:
    """Return the stack of that name, or all of them; raise RolloutError with the nearest name."""
    if name is None:
        return definition.stacks
    found = tuple(stack for stack in definition.stacks if stack.name == name)
    if not found:
        raise unknown("stack", name, (stack.name for stack in definition.stacks))
    return found


def context_of(plane: DataPlane) -> str:
    """Return a data plane's kubeconfig context."""
    return plane.context or plane.name


def no_cluster(definition: Definition) -> RolloutError:
    """Return the error for a command that is about a cluster and was told of none."""
    contexts = listed(dict.fromkeys(context_of(plane) for plane in definition.header.data_planes))
    return RolloutError(
        f"Which cluster? CLUSTER=<context> of {contexts}; or CLUSTER={LOCAL}, the one on this machine.", WRONG_INPUT
    )


def on_cluster(definition: Definition, context: str, name: str | None) -> tuple[Stack, ...]:
    """Return the stacks that live in a cluster, which is said by its kubeconfig context or by its data plane's name."""
    planes = definition.header.data_planes
    plane = next((plane for plane in planes if context_of(plane) == context), None)
    plane = plane or next((plane for plane in planes if plane.name == context), None)
    if plane is None:
        no_plane = f"No data plane of {escaped(definition.file)} has the context {escaped(context)}"
        raise none_such(no_plane, context, (context_of(plane) for plane in planes))
    stacks = tuple(stack for stack in chosen(definition, name) if stack.data_plane == plane)
    if not stacks:
        where = context_of(chosen(definition, name)[0].data_plane)
        raise RolloutError(f"stack {name} does not live in {context}, but in {where}.", WRONG_INPUT)
    return stacks
