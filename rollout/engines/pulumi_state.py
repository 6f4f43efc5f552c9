"""The part of Pulumi's state that lists a stack, and the changes that it needs before Pulumi runs.

Pulumi deletes what its state lists and the program does not declare. It checks neither which cluster a context names,
nor whether another entry, or the program, means the same object. So this module corrects the state first. No such
change touches an object.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stacks.command import CommandError, for_stack
from stacks.problems import escaped
from stacks.stack import StackId

from ..changes.compare import KEPT, identity
from ..kubectl import Kubectl, KubernetesObject
from ..live import LiveState
from ..terminal import note
from . import pulumi_cli
from .ownership import left_in, refused_move, stays
from .pulumi_cli import PulumiCli

_PROVIDER = "pulumi:providers:kubernetes"
_NO_STACK = "no stack named"


@dataclass(frozen=True)
class State:
    """A stack's state, as `pulumi stack export` prints it. Empty if there is no such stack."""

    exported: Any

    @property
    def _resources(self) -> list[Any]:
        return [*((self.exported.get("deployment") or {}).get("resources") or ())]

    @property
    def size(self) -> int:
        return len(self._resources)

    @property
    def pending(self) -> bool:
        """Whether a run was killed during an operation, so that objects may exist that the state does not list."""
        return bool((self.exported.get("deployment") or {}).get("pending_operations"))

    @property
    def context(self) -> str:
        """The kubeconfig context with which the objects were created."""
        return next((one["inputs"].get("context", "") for one in self._resources if one["type"] == _PROVIDER), "")

    def objects(self) -> list[KubernetesObject]:
        """Return the objects as the API server returned them, without those that are about to be deleted."""
        return [one["outputs"] for one in self._resources if _is_object(one) and not one.get("delete")]

    @property
    def namespace(self) -> KubernetesObject | None:
        return next((item for item in self.objects() if item["kind"] == "Namespace"), None)

    def is_in(self, kube: Kubectl) -> bool:
        """Return whether the objects are in this cluster, whatever context they were created with."""
        if self.context == kube.context or self.namespace is None:
            return True
        live = kube.get("namespace", self.namespace["metadata"]["name"])
        return live is not None and live["metadata"]["uid"] == self.namespace["metadata"].get("uid")

    def in_context(self, context: str) -> "State":
        def renamed(resource: Any) -> Any:
            if resource["type"] != _PROVIDER:
                return resource
            sides = {side: {**resource[side], "context": context} for side in ("inputs", "outputs") if side in resource}
            return {**resource, **sides}

        return self._with(map(renamed, self._resources))

    def without_deletions_of(self, declared: Sequence[KubernetesObject]) -> "State":
        """Return the state without entries that would delete objects of the program."""
        kept = {identity(item) for item in declared}
        resources = self._resources
        return self._with(
            one for one in resources if not (one.get("delete") and _is_object(one) and identity(one["inputs"]) in kept)
        )

    def emptied(self) -> "State":
        return self._with(())

    def _with(self, resources: Iterable[Any]) -> "State":
        if not self._resources:
            return self
        return State({**self.exported, "deployment": {**self.exported["deployment"], "resources": [*resources]}})


@dataclass(frozen=True)
class Plan:
    """Changes of a state before Pulumi runs for a stack."""

    state: State  # The state to import, if it differs.
    adopts: bool = False  # Whether this stack has objects that the state does not list.
    notes: tuple[str, ...] = ()


def plan(state: State, stack: StackId, kube: Kubectl, declared: Sequence[KubernetesObject], live: LiveState) -> Plan:
    """Return the changes before `up`. Raise CommandError if Pulumi could not do what the definition declares."""
    if not state.is_in(kube):
        words = f"Pulumi's state of {stack.name} lists objects of {escaped(state.context)}. They stay there"
        until = f"until you run `{for_stack('down', stack, state.context)}`"
        return Plan(state.emptied(), adopts=True, notes=(f"{words} {until}.",))
    before = state.namespace
    if before is None or (was := before["metadata"]["name"]) == stack.namespace:
        return Plan(state.in_context(kube.context).without_deletions_of(declared), state.pending)
    left = left_in(kube, stack, was)
    if not left:  # it was taken down there
        return Plan(state.emptied(), adopts=True)
    if not any(item["kind"] not in KEPT for item in live.declared):
        raise CommandError(refused_move(kube, stack, was, left))
    return Plan(state.emptied(), adopts=True, notes=(stays(kube, stack, was, left),))


def read(cli: PulumiCli, stack: StackId, name: str) -> State:
    """Return the state of an existing stack."""
    exported = pulumi_cli.run(cli, stack, ["stack", "export", "--stack", name])
    with pulumi_cli.understanding("stack export"):
        state = State(json.loads(exported))
        state.objects()
    return state


def write(cli: PulumiCli, stack: StackId, name: str, state: State) -> None:
    """Replace the state of a stack."""
    with TemporaryDirectory(prefix="tidegate-") as folder:  # no other user can read it
        file = Path(folder) / "state.json"
        file.write_text(json.dumps(state.exported), "utf-8")
        pulumi_cli.run(cli, stack, ["stack", "import", "--stack", name, "--file", str(file)])


def found(cli: PulumiCli, stack: StackId) -> tuple[dict[str, int], State]:
    """Return all stacks, and the state of this one, even if it has a former name. Changes nothing. Lists the stacks
    only if this one may have a former name, or its state cannot be read."""
    if not [*stack.former()]:
        try:
            state = read(cli, stack, stack.name)
        except CommandError as error:
            if _NO_STACK in str(error):
                return {}, State({})
        else:
            return {stack.name: state.size}, state
    there = pulumi_cli.stacks(cli, stack)
    name = next((each.name for each in (stack, *stack.former()) if each.name in there), None)
    if name is None:
        return there, State({})
    state = read(cli, stack, name)
    return there, state if name == stack.name else State(renamed(state.exported, name, stack))


def import_renamed_stack(cli: PulumiCli, stack: StackId, there: Mapping[str, int]) -> dict[str, int]:
    """Rename this stack if it has a former name. Return all stacks after that, given those before. Can be repeated
    after an interruption, because the rename is the last step."""
    found = dict(there)
    for former in (each.name for each in stack.former() if each.name in found):
        if stack.name in found:
            remove = f"`pulumi stack rm --force --preserve-config {former}`"
            note(f"Pulumi also has a stack {former}, and would delete its objects with it. To remove only it: {remove}")
            continue
        note(f"Renaming Pulumi's stack {former} to {stack.name}. No object changes …")
        state = read(cli, stack, former)
        write(cli, stack, former, State(renamed(state.exported, former, stack)))
        pulumi_cli.run(cli, stack, ["stack", "rename", stack.name, "--stack", former])
        found[stack.name] = found.pop(former)
    return found


def _is_object(resource: Any) -> bool:
    """Return whether an entry is an object in a cluster, including one that is about to be created."""
    return resource["type"].startswith("kubernetes:") and "kind" in (resource.get("outputs") or {})


def renamed(state: Any, former: str, stack: StackId) -> Any:
    """Return an exported state with the resource names that belong to a stack's new name."""
    begin = re.compile(rf"^(urn:pulumi:.*::){re.escape(former)}(?=-[^:]*$|$)")

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            return {walk(key): walk(value) for key, value in part.items()}
        if isinstance(part, list):
            return [walk(item) for item in part]
        return begin.sub(rf"\g<1>{stack.name}", part) if isinstance(part, str) else part

    state = walk(state)
    for resource in (state.get("deployment") or {}).get("resources") or ():
        if resource["type"] == _PROVIDER:
            for side in ("inputs", "outputs"):
                if "clusterIdentifier" in resource.get(side, {}):
                    resource[side]["clusterIdentifier"] = stack.data_plane.name
    return state
