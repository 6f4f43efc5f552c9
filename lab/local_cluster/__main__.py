"""`python -m lab.local_cluster up|down`: a real control plane on this machine, for `tidegate up` to try out.

Its kubeconfig has the contexts of all data planes of a definition, which all lead to this one cluster.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lab import tools
from rollout.render import render
from stacks.command import CommandError
from stacks.problems import DefinitionError, listed
from stacks.stack import Definition
from stacks.validate import read_definition

from .cluster import LocalCluster
from .control_plane import PROGRAMS, ClusterError, private
from .nodes import nodes_of
from .stand_ins import pinned, prepare

MOST_NODES = 20  # How many nodes of one kind are simulated.
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True, help=__doc__)


def folder() -> Path:
    """Return the folder of this user's local cluster, which every checkout finds."""
    return tools.cache_root() / "local-cluster"


@app.command()
def up(definition: Annotated[Path, typer.Argument()] = Path("stacks/inference.yaml")) -> None:
    """Start the control plane with a definition's nodes, or bring the running one up to date; print how to use it."""
    try:
        read = read_definition(definition)
        cluster = _running()
        _equip(cluster, read)
    except (ClusterError, CommandError, DefinitionError, tools.ToolError) as error:
        raise SystemExit(str(error)) from None
    contexts, copy = _add_contexts(cluster, read), pinned(definition, cluster.folder)
    print(
        "A real control plane runs. Its nodes are simulated: no image runs there, so no pod answers or logs.\n\n"
        f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}\n"
        f"tidegate up {shlex.quote(str(copy))} --cluster {shlex.quote(contexts[0])} --engine helm\n\n"
        f"That file is a copy with made-up digests of images: after an edit of {definition}, run make local-up again.\n"
        f"Contexts of the same cluster: {listed(contexts)}. To end and remove it: make local-down"
    )


@app.command()
def down() -> None:
    """End the control plane, and remove all of it."""
    try:
        ran = LocalCluster.remove(folder())
    except ClusterError as error:
        raise SystemExit(str(error)) from None
    print("The local cluster is gone, with all that was in it." if ran else "There is no local cluster.")


def _running() -> LocalCluster:
    if cluster := LocalCluster.running(folder()):
        return cluster
    if missing := tools.missing(*PROGRAMS, "kubectl"):
        print(
            f"Go builds {listed(missing)} first, once: about 8 minutes on two cores, and 5 GB of caches.",
            file=sys.stderr,
        )
    return LocalCluster.start(folder(), outlives=True)


def _equip(cluster: LocalCluster, definition: Definition) -> None:
    """Give the cluster the definition's nodes, and what its administrators make: custom kinds, classes, drivers."""
    nodes = _nodes(definition)
    cluster.add_nodes(nodes)
    there = {item["metadata"]["name"] for item in cluster.get("nodes", selector="tidegate.dev/simulated=true")}
    if gone := sorted(there - {item["metadata"]["name"] for item in nodes}):
        cluster.kubectl("delete", "node", *gone)
    objects = [item for stack in definition.stacks for item in render(stack, definition).objects]
    prepare(cluster, objects)


def _nodes(definition: Definition) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for plane in definition.header.data_planes:
        for group in plane.gpus:
            if group.nodes > MOST_NODES:
                print(
                    f"{MOST_NODES} of the {group.nodes} nodes with {group.product} of {plane.name} are simulated.",
                    file=sys.stderr,
                )
        theirs = [stack for stack in definition.stacks if stack.data_plane.name == plane.name]
        found += nodes_of(plane, theirs, most=MOST_NODES)
    return found


def _add_contexts(cluster: LocalCluster, definition: Definition) -> list[str]:
    """Write the contexts of the definition's data planes into the kubeconfig; return them."""
    names = [*dict.fromkeys(plane.context_name for plane in definition.header.data_planes)]
    whole = json.loads(cluster.kubeconfig.read_text("utf-8"))
    context = whole["contexts"][0]["context"]
    whole["contexts"] = [{"name": name, "context": context} for name in dict.fromkeys((cluster.context, *names))]
    private(cluster.kubeconfig, json.dumps(whole, indent=1))
    return names


if __name__ == "__main__":
    app(prog_name="python -m lab.local_cluster")
