"""--cluster local: a real control plane on this machine with simulated nodes, one for each user."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table
from rich.text import Text

from lab import tools
from lab.local_cluster import ClusterError, LocalCluster, crds
from lab.local_cluster.control_plane import PROGRAMS, ClusterBusyError
from lab.local_cluster.folder import locked
from lab.local_cluster.nodes import nodes_of
from stacks.command import WRONG_INPUT, CommandError, none_such
from stacks.problems import escaped, listed
from stacks.stack import Definition, Stack

from .contexts import LOCAL
from .health import asked_for, why_pending
from .needs import stand_ins
from .terminal import in_shell, note, tidegate

Done = TypeVar("Done")
MOST_NODES = 20  # How many nodes of one kind are simulated.
_LONGEST_WAIT = 1800.0  # For another process that starts the local cluster: it may have to build Kubernetes first.
_WORD_EVERY = 30.0
_ASKED_EVERY = 0.5


def local_folder() -> Path:
    """Return the folder of this user's local cluster; it is outside of any checkout, so that every one finds it."""
    return tools.cache_root() / "local-cluster"


def is_there(remedy: str) -> bool:
    """Let kubectl and engines find the local cluster, and say whether there is one.

    Raises CommandError, with the remedy, where not all of it runs.
    """
    cluster = LocalCluster.running(local_folder())
    if cluster is not None:
        os.environ.update(cluster.environment())
    elif what := incomplete():
        raise CommandError(f"{what}. {remedy}")
    return cluster is not None


def require_there(definition: str, doing: str) -> None:
    """Do the same for a command that cannot do without one, such as `ask`; CommandError says how to start one."""
    how = tidegate("up", definition, cluster=LOCAL)
    if not is_there(f"Start it anew, empty:\n  {how}"):
        raise CommandError(f"there is no local cluster to {doing}. Start one:\n  {how}")


def local_stacks(definition: Definition, only: str | None = None) -> tuple[Stack, ...]:
    """Return the stacks that live in a local cluster, as they are there.

    Of each environment it is the first, in the order of a rollout.
    """
    first = _first_of_each_environment(definition)
    names = [stack.name for stack in first]
    if only is not None and only not in names:
        raise none_such(f"The local cluster holds one stack of each environment, and not {only}", only, names)
    stacks = tuple(
        replace(stack, data_plane=stack.data_plane.model_copy(update={"context": LOCAL}))
        for stack in first
        if only in (None, stack.name)
    )
    shared = [stack for stack in stacks if [other.namespace for other in stacks].count(stack.namespace) > 1]
    if shared:
        together = listed(f"{stack.name}" for stack in shared)
        raise CommandError(
            f"{together} live in the same namespace, {shared[0].namespace}, and cannot stand in one cluster together.\n"
            f"Choose one: {tidegate('up', definition.file, cluster=LOCAL, stack=shared[0].name)}",
            WRONG_INPUT,
        )
    return stacks


def start_local(definition: Definition, objects: Sequence[dict[str, Any]], folder: Path | None = None) -> LocalCluster:
    """Start the local cluster, or find the one that runs, and make it fit these objects of stacks; raises CommandError.

    It gets the nodes of all data planes that have a stack there, the custom kinds of these objects, and what stands in
    for what a real cluster's administrators make.
    """
    folder = folder or local_folder()
    nodes = _nodes(definition)
    try:
        cluster = LocalCluster.running(folder) or _started(folder)
        with ExitStack() as alone:
            _patiently(lambda: alone.enter_context(locked(folder)))  # two at once would add the same nodes
            cluster.add_nodes(nodes)
            there = {item["metadata"]["name"] for item in cluster.get("nodes", selector="tidegate.dev/simulated=true")}
            # Those that the definition no longer tells of.
            if gone := sorted(there - {item["metadata"]["name"] for item in nodes}):
                cluster.kubectl("delete", "node", *gone)
            others = stand_ins(objects)
            crds.install(cluster, [*objects, *others])
            if others:
                cluster.apply(others)
    except (ClusterError, tools.ToolError) as error:
        raise CommandError(f"there is no local cluster: {error}") from None
    return cluster


def _started(folder: Path) -> LocalCluster:
    """Start the local cluster, or return the one that another process starts meanwhile."""
    if what := incomplete(folder):
        note(f"{what}. It is started anew, and empty: all that was brought up in it is lost.")
    if missing := tools.missing(*PROGRAMS, "kubectl"):
        note(
            f"A local cluster is made of real Kubernetes, and {listed(missing)} must be built from source first:\n"
            "some minutes (about 8 on two cores for all), once on this machine; it takes 5 GB of disk in Go's caches."
        )
    note("Starting a local cluster …")

    def start() -> LocalCluster:
        try:
            cluster = LocalCluster.start(folder, name=LOCAL, outlives=True)
        except ClusterError:
            if there := LocalCluster.running(folder):
                return there
            raise
        note(f"The local cluster is up: its programs and logs are in {folder}.")
        return cluster

    return _patiently(start)


def _patiently(do: Callable[[], Done]) -> Done:
    begin = time.monotonic()
    said = -math.inf
    while True:
        try:
            return do()
        except ClusterBusyError:
            waited = time.monotonic() - begin
            if waited > _LONGEST_WAIT:
                raise
            if waited - said >= _WORD_EVERY:
                said = waited
                note("waiting: another process is at work on the local cluster …")
            time.sleep(_ASKED_EVERY)


def stop_local(folder: Path | None = None) -> bool:
    """End the local cluster and remove all of it; return whether there was one; raises CommandError.

    It says what was left of an incomplete one, and what lies in its folder and is not a cluster's.
    """
    folder = folder or local_folder()
    what = incomplete(folder)
    try:
        gone = LocalCluster.remove(folder)
        left = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    except ClusterError as error:
        raise CommandError(f"the local cluster is not down: {error}") from None
    if what:
        note(f"{what}. What was left of it is ended and removed.")
    if left:
        note(f"Left in {escaped(str(folder))}, for no local cluster made it: {listed(left, most=10)}.")
    return gone or bool(what)


def incomplete(folder: Path | None = None) -> str:
    """Return a sentence, without its full stop, about a local cluster of which not all runs; nothing of any other."""
    ended = LocalCluster.missing(folder or local_folder())
    if not ended:
        return ""
    return f"The local cluster is incomplete: {listed(ended)} {'is' if len(ended) == 1 else 'are'} not running"


def placement_table(cluster: LocalCluster, stacks: Sequence[Stack]) -> Table:
    """Return a table of pods, each with its node and slice or why it waits; CommandError where the cluster is gone."""
    out = Table()
    for name in ("Stack", "Pod", "Node", "Slice, or why it waits"):
        out.add_column(name, overflow="fold")
    try:
        nodes = {item["metadata"]["name"]: item["metadata"]["labels"] for item in cluster.get("nodes")}
        for stack in stacks:
            there = cluster.get("resourceclaims", namespace=stack.namespace)
            claims = {item["metadata"]["name"]: item for item in there}
            pods = {item["metadata"]["name"]: item for item in cluster.get("pods", namespace=stack.namespace)}
            for name, pod in sorted(pods.items()):
                node = pod["spec"].get("nodeName", "")
                what = slice_of(pod, nodes.get(node, {}), claims) if node else why_pending(pod)
                out.add_row(*map(Text, (stack.name, name, node or "none yet", what)))
    except ClusterError as error:
        why, again = str(error).splitlines()[-1], tidegate("up", cluster=LOCAL)
        raise CommandError(f"the local cluster answers no more: {why}\nIf it was taken down: {again}") from None
    return out


def slice_of(pod: dict[str, Any], labels: dict[str, str], claims: dict[str, dict[str, Any]]) -> str:
    """Return which part of which GPU a pod has, in words, from what it asks for and the labels of its node."""
    product = labels.get("nvidia.com/gpu.product", "")
    sharing = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    words = []
    for resource, count in asked_for(pod["spec"]).items():
        what = product
        if resource.startswith("nvidia.com/mig-"):
            what = f"MIG {resource.removeprefix('nvidia.com/mig-')} of {product}"
        elif labels.get("nvidia.com/mig.strategy") == "single":
            made, _, profile = product.partition("-MIG-")
            what = f"MIG {profile} of {made}"
        elif sharing != "none":
            what = f"share of {product.removesuffix('-SHARED')} ({sharing})"
        words.append(f"{count} × {what}")
    for status in pod["status"].get("resourceClaimStatuses", ()):
        allocated = claims.get(status.get("resourceClaimName", ""), {}).get("status", {}).get("allocation", {})
        names = ", ".join(item["device"] for item in allocated.get("devices", {}).get("results", ()))
        of = f" of {product}" if product else ""
        words.append(f"{names}{of} (by its claim)" if names else "a device that is not there yet")
    return "; ".join(words) or "no GPU"


def how_to_look_around(cluster: LocalCluster) -> str:
    """Return what somebody can do now: look at the cluster, and take it down."""
    kubectl = tools.path("kubectl")
    return (
        "This is a real control plane; the nodes of all data planes stand in it together, and are simulated: objects,\n"
        "placement, volumes and rights are as in any cluster, but no image runs, so that nothing answers or logs.\n"
        "Look around with\n"
        f"  export KUBECONFIG={in_shell(cluster.kubeconfig)}\n"
        f"  {in_shell(kubectl)} get pods --all-namespaces --output wide\n"
        "and take it down with\n"
        f"  {tidegate('down', cluster=LOCAL)}"
    )


def _first_of_each_environment(definition: Definition) -> list[Stack]:
    first = {stack.environment.name: stack for stack in reversed(definition.stacks)}
    return [stack for stack in definition.stacks if stack in first.values()]


def _nodes(definition: Definition) -> list[dict[str, Any]]:
    """Return the nodes of every data plane that has a stack here, whichever stacks are brought up now."""
    there = _first_of_each_environment(definition)
    found: list[dict[str, Any]] = []
    for plane in {stack.data_plane.name: stack.data_plane for stack in there}.values():
        for group in plane.gpus:
            if group.nodes > MOST_NODES:
                note(f"Of the {group.nodes} nodes with {group.product} of {plane.name}, {MOST_NODES} are simulated.")
        theirs = [stack for stack in there if stack.data_plane.name == plane.name]
        found += nodes_of(plane, theirs, most=MOST_NODES)
    return found
