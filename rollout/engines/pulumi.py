"""Pulumi as an engine: the work before and after it runs.

That work handles what other engines, killed runs and manual changes left in a stack's cluster.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stacks.command import CommandError, EngineName
from stacks.problems import escaped
from stacks.stack import Definition, Stack, StackId

from ..changes.compare import identity
from ..handover import keep_scale, prune, remove_manual_additions, to_pulumi
from ..kubectl import Kubectl, KubernetesObject
from ..live import LiveState, as_declared, remaining_objects, require_there, state_of_stack
from ..render import Rendered, render
from ..terminal import note
from . import ownership, pulumi_cli, pulumi_state
from .bundle import Bundle
from .ownership import Owner, helm_release
from .pulumi_cli import PulumiCli
from .pulumi_state import Plan, State
from .watched import await_ready, timeout_seconds

READ_FROM = "TIDEGATE_READ_FROM"
"""Names a file for the program to read instead of the definition in the stack's configuration."""
_UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


@dataclass(frozen=True)
class Pulumi:
    """The user's own Pulumi."""

    cli: PulumiCli
    adopt: bool = False
    name: EngineName = "pulumi"

    @property
    def title(self) -> str:
        return str(self.cli)

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        return [render(stack, definition) for stack in stacks]

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError if `up` would refuse a stack, or if Pulumi could not apply it."""
        kube = Kubectl(stack.data_plane.context_name)
        _, state = pulumi_state.found(_in_project(self.cli), stack)
        _, planned, _ = self._planned(kube, stack, rendered.objects, state)
        for text in planned.notes:
            note(text)

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Apply a stack. Raise CommandError if it is then not as declared. Pulumi always waits. If the stack already is
        as declared, this only waits until it is ready, and returns False."""
        stack, objects = bundle.stack, bundle.rendered.objects
        kube = Kubectl(stack.data_plane.context_name)
        cli = _in_project(self.cli)
        with ThreadPoolExecutor(2) as beside:
            querying = beside.submit(pulumi_state.found, cli, stack)
            looking = beside.submit(state_of_stack, kube, objects)
            resources, state = querying.result()
            owner, planned, live = self._planned(kube, stack, objects, state, looking.result())
        known = stack.name in resources and pulumi_cli.is_configured(cli, stack, bundle.definition)
        if known and _is_up_to_date(kube, objects, state, planned, live):
            if wait:
                await_ready(kube, objects, timeout_seconds(objects))
            return False
        for text in planned.notes:
            note(text)
        if stack.name not in resources:
            resources = pulumi_state.import_renamed_stack(cli, stack, resources)
        if stack.name in resources and planned.state != state:
            pulumi_state.write(cli, stack, stack.name, planned.state)
        environment = dict(cli.environment)
        if bundle.read_from is not None:
            environment[READ_FROM] = str(bundle.read_from.resolve())
        if self.adopt or planned.adopts or owner == ownership.UNOWNED:
            # Objects may exist that Pulumi's state does not list, which would otherwise be an error.
            environment[_UPSERT] = "true"
        was_helms = owner is not None and owner.engine == "helm"
        if owner is not None:
            if was_helms:
                to_pulumi(kube, [*live.declared, *live.gone])
                live = state_of_stack(kube, objects)
            keep_scale(kube, objects, live.declared)
            remove_manual_additions(kube, objects, live.declared)
        configured = replace(cli, environment=environment)
        _finish(cli, pulumi_cli.operate(configured, stack, bundle.definition, pulumi_cli.UP, resources))
        if state.pending:
            refresh = ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", stack.name]
            pulumi_cli.run(cli, stack, refresh)
        if was_helms:
            ownership.delete_release_records(kube, (stack, *stack.former()))
        prune(kube, live.gone if owner is not None else [])
        require_there(kube, objects)
        return True

    def _planned(
        self,
        kube: Kubectl,
        stack: Stack,
        objects: Sequence[KubernetesObject],
        state: State,
        live: LiveState | None = None,
    ) -> tuple[Owner | None, Plan, LiveState]:
        """Return a stack's owner, the changes of its state, and its live objects. Raise CommandError."""
        owner = ownership.owner_for_up(kube, stack, "pulumi", adopt=self.adopt)
        live = live or state_of_stack(kube, objects)
        planned = pulumi_state.plan(state, stack, kube, objects, live)
        listed = {identity(item) for item in planned.state.objects()}
        unknown = [item for item in live.declared if identity(item) not in listed]
        if owner == ownership.UNOWNED:
            unknown = [item for item in unknown if item["kind"] != "Namespace"]
        if self.adopt:
            ownership.require_ours([*unknown, *live.gone], stack, kube.context, adopt=True)
        elif owner == ownership.UNOWNED and (strange := [*unknown, *live.gone]):
            raise CommandError(pulumi_cli.not_in_state(stack, strange))
        elif unknown and not planned.adopts:
            raise CommandError(pulumi_cli.not_in_state(stack, unknown))
        return owner, planned, live

    def down(self, home: StackId, definition: Path) -> None:
        """Remove a stack. Its datasets are protected, and what holds them stays too. Pulumi destroys what its state
        lists, wherever that is. So it runs only if that is this namespace and cluster."""
        kube = Kubectl(home.data_plane.context_name)
        ownership.ensure_owner(kube, home, "pulumi")
        cli = _in_project(self.cli)
        resources, state = pulumi_state.found(cli, home)
        namespace = state.namespace
        if namespace is not None and namespace["metadata"]["name"] == home.namespace and state.is_in(kube):
            if home.name not in resources:
                resources = pulumi_state.import_renamed_stack(cli, home, resources)
            if (here := state.in_context(kube.context)) != state:
                pulumi_state.write(cli, home, home.name, here)
            _finish(cli, pulumi_cli.operate(cli, home, definition, pulumi_cli.DESTROY, resources))
        elif namespace is not None:
            where = f"{escaped(state.context)}, namespace {escaped(namespace['metadata']['name'])}"
            note(f"Pulumi's state of {home.name} lists objects elsewhere ({where}): they stay.")
        prune(kube, [item for item in remaining_objects(kube, home) if helm_release(item) is None])


def _is_up_to_date(
    kube: Kubectl, objects: Sequence[KubernetesObject], state: State, planned: Plan, live: LiveState
) -> bool:
    """Return whether a stack is as declared, in the cluster and in Pulumi's state, so that an `up` changes nothing."""
    if planned != Plan(state) or {identity(item) for item in state.objects()} != {identity(item) for item in objects}:
        return False
    return as_declared(kube, lambda: live, objects)


def find(adopt: bool = False) -> Pulumi | None:
    """Return the `pulumi` on the PATH as an engine, or None."""
    cli = pulumi_cli.find()
    return None if cli is None else Pulumi(cli, adopt)


def _finish(cli: PulumiCli, code: int) -> None:
    if code:
        raise CommandError(f"{cli} ended with exit code {code}. Its output is above.")


def _in_project(cli: PulumiCli) -> PulumiCli:
    """Return Pulumi if there is a project to run it in. Raises CommandError otherwise."""
    if not (pulumi_cli.PROJECT / "Pulumi.yaml").is_file():
        raise CommandError(
            f"{escaped(str(Path.cwd()))} has no Pulumi project, and Tidegate's own is not installed here.\n"
            "    Run this in the directory of your platform, which `tidegate init` writes, or add --engine helm."
        )
    return cli
