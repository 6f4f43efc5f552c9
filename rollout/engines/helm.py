"""Helm: installs the generated chart with a stack's values.

Helm gets the user's environment, including KUBECONFIG and HELM_…, unchanged. HELM_DRIVER must not move Helm's records
out of Secrets, because this module reads them.
"""

import base64
import gzip
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from charts import CHART, values_of
from stacks.command import NO_ENGINE, WRONG_INPUT, CommandError, EngineName
from stacks.images_lock import ImagesLock
from stacks.problems import escaped
from stacks.resolve import resolve
from stacks.stack import Definition, Stack, StackId

from .. import processes, tools
from ..handover import keep_scale, prune, remove_manual_additions, to_helm
from ..health import lacking, target_of
from ..kubectl import Kubectl, KubernetesObject, as_list, explained, in_words
from ..live import LiveState, as_declared, remaining_objects, require_there, state_of_stack
from ..render import Rendered, rendered
from ..terminal import note
from . import lease, ownership
from .bundle import Bundle
from .ownership import helm_marks, helm_release, records, release_of, releases_of
from .watched import await_ready, run_watched, timeout_seconds

_DOWN_SECONDS = 600
_TEMPLATE_SECONDS = 60
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Helm:
    """A `helm` of a suitable version."""

    path: str
    version: str
    adopt: bool = False
    name: EngineName = "helm"

    @property
    def title(self) -> str:
        return f"Helm {self.version} ({self.path})"

    def render(self, stacks: Sequence[Stack], definition: Definition) -> list[Rendered]:
        """Return the objects of the chart for each stack, without hooks. Raise CommandError if Helm fails."""
        with ThreadPoolExecutor() as beside:
            return [*beside.map(lambda stack: self._rendered(stack, definition), stacks)]

    def _rendered(self, stack: Stack, definition: Definition) -> Rendered:
        release, namespace = release_of(stack)
        command = [self.path, "template", release, str(CHART), "--namespace", namespace, "--no-hooks", "--values", "-"]
        done = processes.run(command, stdin=json.dumps(_values(stack, definition.lock)), seconds=_TEMPLATE_SECONDS)
        if done.returncode:
            raise CommandError(f"Helm cannot render the chart for {stack.name}: {in_words(done.stderr)}")
        documents = yaml.load_all(done.stdout, Loader=_LOADER)
        return rendered(stack.name, [item for item in documents if item], definition.file)

    def check(self, stack: Stack, rendered: Rendered) -> None:
        kube = Kubectl(stack.data_plane.context_name)
        owner = ownership.owner_for_up(kube, stack, "helm", adopt=self.adopt)
        if owner is not None:
            self._foreign(state_of_stack(kube, rendered.objects), stack, kube)
        if owner in (None, ownership.UNOWNED) and (text := ownership.owner_in_other_namespace(kube, stack)):
            note(text)

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Apply a stack with its values. Raise CommandError if it is then not as declared. If the stack is already as
        declared, this only waits for it, makes no revision, and returns False."""
        stack, objects = bundle.stack, bundle.rendered.objects
        kube = Kubectl(stack.data_plane.context_name)
        values, seconds = _values(stack, bundle.lock), timeout_seconds(objects)
        first = ThreadPoolExecutor(2)  # nothing is changed yet, so no lease is held
        standing = first.submit(_is_up_to_date, kube, stack, objects, values)
        waiting = first.submit(lacking, kube, target_of(objects)) if wait else None
        owner = ownership.owner_for_up(kube, stack, "helm", adopt=self.adopt)
        if owner is not None and standing.result():
            if waiting and waiting.result():
                await_ready(kube, objects, seconds)
            return False
        if owner in (None, ownership.UNOWNED) and (text := ownership.owner_in_other_namespace(kube, stack)):
            note(text)
        if owner is None:
            # Helm stores its records in the namespace, so it must exist, with the release's marks.
            namespace = next(item for item in objects if item["kind"] == "Namespace")
            head = {kind: {**namespace["metadata"].get(kind, {}), **of} for kind, of in helm_marks(stack).items()}
            owned = {**namespace, "metadata": {**namespace["metadata"], **head}}
            kube.run("apply", "--server-side", "--field-manager=helm", "-f", "-", stdin=as_list([owned]))
        with lease.acquire_lease(kube, lease.RolloutLease(stack.namespace)) as hold:
            with ThreadPoolExecutor(1) as beside:
                looking = beside.submit(state_of_stack, kube, objects)
                recovered = self._recover(kube, stack)
            live = state_of_stack(kube, objects) if recovered else looking.result()
            if foreign := self._foreign(live, stack, kube):
                to_helm(kube, foreign, helm_marks(stack))
                live = state_of_stack(kube, objects)
            # From here on this release owns the objects, even if one of the next steps fails.
            ownership.delete_release_records(kube, stack.former())
            keep_scale(kube, objects, live.declared)
            remove_manual_additions(kube, objects, live.declared)
            # Values go through standard input, because other users can read command lines. Server-side apply with
            # --force-conflicts reverts manual changes.
            command = [self.path, "upgrade", "--install", release_of(stack)[0], str(CHART), *_where(kube, stack)]
            command += ["--values", "-", "--server-side=true", "--force-conflicts", "--hide-notes"]
            # Skips Helm's query whether the API server validates all fields. Every one does since Kubernetes 1.27.
            command += ["--disable-openapi-validation", "--timeout", f"{seconds}s"]
            if wait:
                command.append("--wait")
            waited, text = objects if wait else (), json.dumps(values)
            failure = run_watched(command, kube, hold, waited, seconds=seconds, stdin=text)
            if failure is not None:
                raise CommandError(_why(failure, kube, stack))
            hold.ensure_held()
            prune(kube, live.gone)
            require_there(kube, objects)
        if owner is not None and owner.release and owner.release != release_of(stack):
            note(f"Renamed release {owner.release[0]} to {release_of(stack)[0]}.")
        if owner is not None and owner.engine == "pulumi":
            note(
                f"Helm now manages {stack.name}. Pulumi's state still lists its objects, and `pulumi destroy` would"
                " delete them. Remove them from the state, which deletes no object, with"
                f" `pulumi stack rm --force --preserve-config {stack.name}`."
            )
        return True

    def down(self, home: StackId, definition: Path) -> None:
        """Uninstall a stack's release. The chart keeps volumes, claims and their namespace."""
        del definition
        kube = Kubectl(home.data_plane.context_name)
        owner = ownership.ensure_owner(kube, home, "helm")
        if owner is None:
            return
        with lease.acquire_lease(kube, lease.RolloutLease(home.namespace)) as hold:
            held_as = next((each for each in home.former() if release_of(each) == owner.release), home)
            command = [*self._uninstall(kube, held_as), "--ignore-not-found"]
            if (failure := run_watched(command, kube, hold)) is not None:
                raise CommandError(_why(failure, kube, home))
            hold.ensure_held()
            left = remaining_objects(kube, home)
            prune(kube, [item for item in left if helm_release(item) in (None, *releases_of(home))])
            ownership.delete_release_records(kube, home.former())

    def _foreign(self, live: LiveState, stack: Stack, kube: Kubectl) -> list[KubernetesObject]:
        """Return objects that are not the release's. Raise CommandError unless they are to be adopted."""
        if foreign := _not_of_release(live, stack):
            ownership.require_ours(foreign, stack, kube.context, adopt=self.adopt)
        return foreign

    def _uninstall(self, kube: Kubectl, stack: StackId) -> list[str]:
        name, how = release_of(stack)[0], ("--wait", f"--timeout={_DOWN_SECONDS}s")
        return [self.path, "uninstall", name, *_where(kube, stack), *how]

    def _recover(self, kube: Kubectl, stack: Stack) -> bool:
        """Clean up after a killed Helm. Return whether that was necessary.

        The caller holds the lease, so no other Helm runs. A pending record blocks every later upgrade, so it is
        deleted. The next upgrade finds the existing objects by Helm's marks and completes the work. A rollback first
        would restart pods twice.
        """
        found = records(kube, stack, "status!=superseded")
        if not found:
            return False
        last, release = found[-1], release_of(stack)[0]
        status = last["metadata"]["labels"].get("status", "")
        if status.startswith("pending-"):
            note(f"revision {last['metadata']['labels']['version']} of {release} was not finished. Continuing …")
            kube.run("delete", "secret", last["metadata"]["name"], "-n", stack.namespace)
            return True
        if status == "uninstalling":
            note(f"{release} was not completely uninstalled. Finishing that first …")
            done = processes.run(self._uninstall(kube, stack), seconds=_DOWN_SECONDS + 60)
            if done.returncode:
                raise CommandError(f"{release} cannot be uninstalled: {in_words(done.stderr)}")
            return True
        return False


def find(adopt: bool = False) -> Helm:
    """Return the installed or built `helm`. Raise CommandError if there is none."""
    driver = os.environ.get("HELM_DRIVER", "")
    if driver not in ("", "secret", "secrets"):
        raise CommandError(
            f"HELM_DRIVER is {escaped(driver)}, but Tidegate supports only Helm releases in Secrets. Unset HELM_DRIVER,"
            " or run `helm upgrade --install` yourself (docs/helm.md).",
            WRONG_INPUT,
        )
    try:
        found = tools.find(tools.HELM)
    except tools.ToolError as error:
        raise CommandError(f"Helm is not installed and cannot be built:\n{error}", NO_ENGINE) from None
    return Helm(str(found.path), found.version, adopt)


def _is_up_to_date(kube: Kubectl, stack: Stack, objects: Sequence[KubernetesObject], values: Mapping[str, Any]) -> bool:
    """Whether a stack is as declared, by a finished revision, so that nothing has to be done."""
    with ThreadPoolExecutor(1) as beside:
        looking = beside.submit(state_of_stack, kube, objects)
        recorded = records(kube, stack, "status!=superseded")
        finished = bool(recorded) and is_of(recorded[-1], CHART, values)
        stands = finished and as_declared(kube, looking.result, objects)
    return not _not_of_release(looking.result(), stack) and stands


def is_of(record: KubernetesObject, chart: Path, values: Mapping[str, Any]) -> bool:
    """Whether a record is of a deployed revision of this version of the chart with these values. Helm would render the
    same objects and hooks from them again."""
    if record["metadata"]["labels"].get("status") != "deployed":
        return False
    try:
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(record["data"]["release"]))))
        made_of = release["chart"]
        templates = {item["name"]: base64.b64decode(item["data"]) for item in made_of["templates"]}
        same_head = made_of["metadata"] == yaml.load((chart / "Chart.yaml").read_bytes(), _LOADER)
        same_values = made_of["values"] == yaml.load((chart / "values.yaml").read_bytes(), _LOADER)
        config = release.get("config") or {}
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError):  # another Helm's format
        return False
    files = {str(path.relative_to(chart)): path.read_bytes() for path in (chart / "templates").rglob("*.*")}
    return same_head and same_values and templates == files and config == json.loads(json.dumps(values))


def _values(stack: Stack, lock: ImagesLock) -> dict[str, Any]:
    return values_of(resolve(stack, lock))


def _not_of_release(live: LiveState, stack: Stack) -> list[KubernetesObject]:
    return [item for item in (*live.declared, *live.gone) if helm_release(item) != release_of(stack)]


def _where(kube: Kubectl, stack: StackId) -> tuple[str, ...]:
    return "--kube-context", kube.context, "--namespace", stack.namespace


def _why(output: str, kube: Kubectl, stack: StackId) -> str:
    lines = [line for line in output.splitlines() if "warnings.go" not in line and not line.startswith("level=")]
    output = "\n".join(lines) or output
    return explained(output, kube.context) or f"Helm failed for {stack.name}: {in_words(output)}"
