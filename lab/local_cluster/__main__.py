"""`python -m lab.local_cluster`: a real control plane on this machine, for `tidegate up` to try out.

Its kubeconfig has the contexts of all data planes of a definition, which all lead to this one cluster.
"""

import json
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from lab import tools
from lab.local_plane.process import ProcessError
from rollout.render import render
from stacks.command import CommandError
from stacks.problems import DefinitionError, listed
from stacks.stack import Definition
from stacks.validate import read_definition

from .cluster import LocalCluster
from .control_plane import PROGRAMS, private
from .nodes import nodes_of
from .stand_ins import pinned, prepare

MOST_NODES = 20  # How many nodes of one kind are simulated.
LOOK_SECONDS = 0.5


def main(definition: Annotated[Path, typer.Argument()] = Path("stacks/inference.yaml")) -> None:
    """Run a control plane with the definition's nodes until Ctrl-C; print how to use it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if missing := tools.missing(*PROGRAMS, "kubectl"):
        say(f"Go builds {listed(missing)} first, once: about 8 minutes on two cores, and 5 GB of caches.")
    try:
        read = read_definition(definition)
        with (
            tempfile.TemporaryDirectory(prefix="tidegate-cluster-") as folder,
            LocalCluster.start(Path(folder)) as cluster,
        ):
            print(fill(cluster, read, definition), flush=True)
            while True:
                time.sleep(LOOK_SECONDS)
                for process in cluster.processes.values():
                    process.check()
    except (CommandError, DefinitionError, ProcessError, tools.ToolError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        say("The local cluster has ended, with all that was in it.")


def fill(cluster: LocalCluster, read: Definition, definition: Path) -> str:
    """Give the cluster a definition's contexts, nodes, and what its administrators make; return how to use it."""
    cluster.add_nodes(_nodes(read))
    prepare(cluster, [item for stack in read.stacks for item in render(stack, read).objects])
    contexts, copy = _add_contexts(cluster, read), pinned(definition, cluster.folder)
    return (
        "A real control plane runs until Ctrl-C. Its nodes are simulated: no image runs there, so no pod answers or "
        "logs. In another terminal:\n\n"
        f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}\n"
        f"tidegate up {shlex.quote(str(copy))} --cluster {shlex.quote(contexts[0])} --engine helm\n\n"
        f"That file is a copy of {definition} with made-up digests of images.\n"
        f"Contexts of the same cluster: {listed(contexts)}."
    )


def _nodes(definition: Definition) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for plane in definition.header.data_planes:
        for group in plane.gpus:
            if group.nodes > MOST_NODES:
                say(f"{MOST_NODES} of the {group.nodes} nodes with {group.product} of {plane.name} are simulated.")
        stacks = [stack for stack in definition.stacks if stack.data_plane.name == plane.name]
        found += nodes_of(plane, stacks, most=MOST_NODES)
    return found


def _add_contexts(cluster: LocalCluster, definition: Definition) -> list[str]:
    """Write the contexts of the definition's data planes into the kubeconfig; return them."""
    names = [*dict.fromkeys(plane.context_name for plane in definition.header.data_planes)]
    config = json.loads(cluster.kubeconfig.read_text("utf-8"))
    context = config["contexts"][0]["context"]
    config["contexts"] = [{"name": name, "context": context} for name in dict.fromkeys((cluster.context, *names))]
    private(cluster.kubeconfig, json.dumps(config, indent=1))
    return names


def say(text: str) -> None:
    """Print on standard error: standard output has the lines to paste."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
