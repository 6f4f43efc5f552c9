"""The stacks of each cluster, by its kubeconfig context, and whether they may run there."""

from collections.abc import Sequence

from stacks.command import WRONG_INPUT, CommandError, chosen_stacks, none_such, tidegate
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack


def context_in(definition: Definition, cluster: str) -> str:
    """Return the kubeconfig context of a cluster, given that context or the name of its data plane."""
    contexts = {plane.name: plane.context_name for plane in definition.header.data_planes}
    return cluster if cluster in contexts.values() else contexts.get(cluster, cluster)


def require_named(definition: Definition, cluster: str) -> None:
    """Raise CommandError if no cluster is named."""
    if not cluster:
        contexts = listed(dict.fromkeys(plane.context_name for plane in definition.header.data_planes))
        raise CommandError(f"Add a cluster: --cluster <context>, one of {contexts}.", WRONG_INPUT)


def on_cluster(definition: Definition, context: str, name: str | None) -> tuple[Stack, ...]:
    """Return the stacks of a cluster, given its kubeconfig context or the name of its data plane."""
    cluster = context_in(definition, context)
    plane = next((plane for plane in definition.header.data_planes if plane.context_name == cluster), None)
    if plane is None:
        no_plane = f"No data plane of {escaped(definition.file)} has the context {escaped(context)}"
        raise none_such(no_plane, context, (plane.context_name for plane in definition.header.data_planes))
    stacks = tuple(stack for stack in chosen_stacks(definition, name) if stack.data_plane == plane)
    if not stacks:
        where = chosen_stacks(definition, name)[0].data_plane.context_name
        raise CommandError(f"stack {name} does not live in {context}, but in {where}.", WRONG_INPUT)
    return stacks


def refuse_tags(definition: Definition, stacks: Sequence[Stack]) -> None:
    """Raise CommandError if images without a digest are in a stack whose environment is not local."""
    missing: dict[str, list[str]] = {}
    for stack in stacks:
        for image in stack.platform.images:
            if not stack.environment.local and definition.lock.digest(image.reference) is None:
                missing.setdefault(image.reference, []).append(stack.name)
    if missing:
        lines = [f"  {image} ({', '.join(names)})" for image, names in missing.items()]
        lines += ["Someone can move a tag, and then the cluster runs another image than you tested. Only environments"]
        lines += ["with `local: true` may use tags. Nothing was changed. On a machine that reaches the registries, run"]
        lines += [f"  {tidegate('pin', definition.file)}", "and commit images.lock."]
        raise CommandError("\n".join(["images.lock has no digest for these images:", *lines]))
