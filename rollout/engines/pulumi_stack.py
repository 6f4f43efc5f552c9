"""What a stack's cluster needs before and after Pulumi goes to work: other engines, killed runs, changes by hand."""

import json
import os
from dataclasses import replace
from typing import Any

import yaml

from lab.local_cluster.folder import PULUMI
from stacks.command import CommandError
from stacks.stack import Stack

from .. import local
from ..contexts import context_of
from ..handover import keep_scale, mend, prune, to_pulumi
from ..kubectl import Kubectl, KubernetesObject
from ..live import of_stack
from ..render import Rendered
from . import Bundle, ownership, pulumi
from .helm_release import records

READ_FROM = "TIDEGATE_READ_FROM"
"""Names the file that the program reads in the place of the definition that the stack's configuration names."""
_UPSERT = "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"


def check(stack: Stack, rendered: Rendered, *, adopt: bool) -> None:
    """Raise CommandError where `up` would refuse a stack before Pulumi is asked."""
    kube = Kubectl(context_of(stack.data_plane))
    owner = ownership.require(kube, stack, "pulumi", adopt=adopt)
    if owner is not None and owner.engine == "helm":
        there = of_stack(kube, rendered.objects)
        ownership.require_ours([*there.declared, *there.gone], stack, kube.context, adopt=True)


def up(cli: pulumi.PulumiCli, bundle: Bundle, *, adopt: bool = False) -> None:
    """Bring a stack up; raise CommandError when it is not as declared."""
    stack, rendered = bundle.stack, bundle.rendered
    kube = Kubectl(context_of(stack.data_plane))
    owner = ownership.require(kube, stack, "pulumi", adopt=adopt)
    cli = _here(cli, stack)
    pending = _pending(cli, stack)
    environment = dict(cli.environment)
    if bundle.read_from is not None:
        environment[READ_FROM] = str(bundle.read_from.resolve())
    if adopt or pending:
        # Objects may be there that Pulumi's state does not know; otherwise that is an error, and rightly.
        environment[_UPSERT] = "true"
    gone: list[KubernetesObject] = []
    if owner is not None:
        there = of_stack(kube, rendered.objects)
        gone = there.gone
        if adopt and owner.engine == "helm":
            everything = [*there.declared, *there.gone]
            ownership.require_ours(everything, stack, kube.context, adopt=True)
            to_pulumi(kube, everything)
            there = of_stack(kube, rendered.objects)
        keep_scale(kube, rendered.objects, there.declared)
        mend(kube, rendered.objects, there.declared)
    _finish(cli, pulumi.up(replace(cli, environment=environment), stack, bundle.definition))
    if pending:
        pulumi.ask(cli, stack, ["refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", stack.name])
    if owner is not None and owner.engine == "helm":
        for record in records(kube, stack):
            kube.run("delete", "secret", record["metadata"]["name"], "-n", stack.namespace)
    prune(kube, gone)


def down(cli: pulumi.PulumiCli, bundle: Bundle) -> None:
    """Take a stack down; its datasets are protected, and what holds them stays too."""
    stack = bundle.stack
    kube = Kubectl(context_of(stack.data_plane))
    ownership.require(kube, stack, "pulumi")
    cli = _here(cli, stack)
    _finish(cli, pulumi.destroy(cli, stack, bundle.definition))
    left = of_stack(kube, bundle.rendered.objects).everything
    prune(kube, [item for item in left if not ownership.is_of_another(item, None)])


def _finish(cli: pulumi.PulumiCli, code: int) -> None:
    if code:
        raise CommandError(f"{cli} ended with exit code {code}; what it says stands above.")


def _pending(cli: pulumi.PulumiCli, stack: Stack) -> bool:
    """Say whether an earlier run was killed in the middle of an operation."""
    if stack.name not in pulumi.stacks(cli, stack):
        return False
    state: Any = json.loads(pulumi.ask(cli, stack, ["stack", "export", "--stack", stack.name]))
    return bool((state.get("deployment") or {}).get("pending_operations"))


def _here(cli: pulumi.PulumiCli, stack: Stack) -> pulumi.PulumiCli:
    """Return Pulumi with a project and a state of its own for the local cluster, beside which these vanish."""
    if context_of(stack.data_plane) != local.CONTEXT:
        return cli
    folder = local.local_folder() / PULUMI
    (folder / "state").mkdir(parents=True, exist_ok=True, mode=0o700)
    project = yaml.safe_load((pulumi.ROOT / "Pulumi.yaml").read_text("utf-8"))
    project["main"] = os.path.relpath(pulumi.ROOT, folder)
    project["runtime"]["options"]["virtualenv"] = str(pulumi.ROOT / project["runtime"]["options"]["virtualenv"])
    del project["stackConfigDir"]
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False), "utf-8")
    environment = {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""}
    return replace(cli, folder=folder, environment=environment)
