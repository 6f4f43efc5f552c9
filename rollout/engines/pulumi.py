"""Pulumi as an engine: what a stack's cluster needs before and after it goes to work.

That is what other engines, killed runs and people's hands have left.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from lab.local_cluster.folder import PULUMI
from stacks.command import CommandError
from stacks.stack import Definition, Home, Stack

from .. import local
from ..contexts import LOCAL
from ..handover import keep_scale, mend, prune, to_pulumi
from ..kubectl import Kubectl, KubernetesObject
from ..live import left_of, of_stack
from ..render import Rendered, render
from . import ownership, pulumi_cli, pulumi_state
from .bundle import Bundle
from .ownership import helm_release
from .pulumi_cli import PulumiCli

READ_FROM = "TIDEGATE_READ_FROM"
"""Names the file that the program reads in the place of the definition that the stack's configuration names."""
_UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


@dataclass(frozen=True)
class Pulumi:
    """The user's own Pulumi."""

    cli: PulumiCli
    adopt: bool = False
    name: str = "pulumi"

    @property
    def title(self) -> str:
        """Name, version and path of the program, for messages."""
        return str(self.cli)

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        """Return the objects of each of these stacks, of the components in this process."""
        return [render(stack, definition) for stack in stacks]

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError where `up` would refuse a stack before Pulumi is asked."""
        kube = Kubectl(stack.data_plane.context_name)
        owner = ownership.require(kube, stack, "pulumi", adopt=self.adopt)
        if owner is not None and owner.engine == "helm":
            live = of_stack(kube, rendered.objects)
            ownership.require_ours([*live.declared, *live.gone], stack, kube.context, adopt=True)

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Bring a stack up; raise CommandError when it is not as declared. Pulumi always waits."""
        del wait
        stack, objects = bundle.stack, bundle.rendered.objects
        kube = Kubectl(stack.data_plane.context_name)
        owner = ownership.require(kube, stack, "pulumi", adopt=self.adopt)
        cli = _here(self.cli, stack)
        resources = pulumi_state.moved(cli, stack)
        # Whether an earlier run was killed in the middle of an operation.
        export = ["stack", "export", "--stack", stack.name]
        state: Any = json.loads(pulumi_cli.ask(cli, stack, export)) if stack.name in resources else {}
        pending = bool((state.get("deployment") or {}).get("pending_operations"))
        environment = dict(cli.environment)
        if bundle.read_from is not None:
            environment[READ_FROM] = str(bundle.read_from.resolve())
        if self.adopt or pending:
            # Objects may be there that Pulumi's state does not know; otherwise that is an error, and rightly.
            environment[_UPSERT] = "true"
        was_helms = owner is not None and owner.engine == "helm"
        gone: list[KubernetesObject] = []
        if owner is not None:
            live = of_stack(kube, objects)
            gone = live.gone
            if self.adopt and was_helms:
                everything = [*live.declared, *live.gone]
                ownership.require_ours(everything, stack, kube.context, adopt=True)
                to_pulumi(kube, everything)
                live = of_stack(kube, objects)
            keep_scale(kube, objects, live.declared)
            mend(kube, objects, live.declared)
        told = replace(cli, environment=environment)
        _finish(cli, pulumi_cli.operate(told, stack, bundle.definition, pulumi_cli.UP, resources))
        if pending:
            refresh = ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", stack.name]
            pulumi_cli.ask(cli, stack, refresh)
        if was_helms:
            ownership.forget(kube, (stack, *stack.former()))
        prune(kube, gone)
        return True

    def down(self, home: Home, definition: Path) -> None:
        """Take a stack down; its datasets are protected, and what holds them stays too."""
        kube = Kubectl(home.data_plane.context_name)
        ownership.require(kube, home, "pulumi")
        cli = _here(self.cli, home)
        if [*home.former()]:
            pulumi_state.moved(cli, home)
        _finish(cli, pulumi_cli.operate(cli, home, definition, pulumi_cli.DESTROY))
        prune(kube, [item for item in left_of(kube, home) if helm_release(item) is None])


def find(adopt: bool = False) -> Pulumi | None:
    """Return the `pulumi` on the PATH as an engine; None where there is none."""
    cli = pulumi_cli.find()
    return None if cli is None else Pulumi(cli, adopt)


def _finish(cli: PulumiCli, code: int) -> None:
    if code:
        raise CommandError(f"{cli} ended with exit code {code}; what it says stands above.")


def _here(cli: PulumiCli, stack: Home) -> PulumiCli:
    """Return Pulumi with a project and a state of its own for the local cluster, with which they vanish."""
    if stack.data_plane.context_name != LOCAL:
        return cli
    folder = local.local_folder() / PULUMI
    (folder / "state").mkdir(parents=True, exist_ok=True, mode=0o700)
    project = yaml.safe_load((pulumi_cli.ROOT / "Pulumi.yaml").read_text("utf-8"))
    project["main"] = os.path.relpath(pulumi_cli.ROOT, folder)
    project["runtime"]["options"]["virtualenv"] = str(pulumi_cli.PROJECT / project["runtime"]["options"]["virtualenv"])
    del project["stackConfigDir"]
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False), "utf-8")
    state = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""}
    return replace(cli, folder=folder, environment={**cli.environment, **state})
