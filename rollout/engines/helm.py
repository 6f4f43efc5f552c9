"""Helm: installs the generated chart with a stack's values.

Environment variables, which are the user's and are handed on as they are: KUBECONFIG, and Helm's own (HELM_…).
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkstemp

import yaml

import tools
from stacks.resolve import resolve
from stacks.stack import Stack
from stacks.validate import read_definition

from ..choose import context_of
from ..errors import NO_ENGINE, RolloutError
from ..handover import HELM_NAME, HELM_NAMESPACE, keep_scale, mend, prune, to_helm
from ..kubectl import Kubectl, KubernetesObject, as_list
from ..live import of_stack
from ..refusals import explained, in_words
from ..render import Rendered, render
from ..terminal import note
from . import lease, ownership
from .helm_release import recover, release_name
from .watched import run_watched

_MARGIN_SECONDS = 300
_LEAST_SECONDS = 600
_DOWN_SECONDS = 600
_VALUES_PREFIX = "tidegate-values-"
_FRESH_SECONDS = 60
"""A file of values that is so young may be about to be locked."""


@dataclass(frozen=True)
class Helm:
    """A `helm` that is new enough."""

    path: str
    version: str
    adopt: bool = False
    name: str = "helm"

    @property
    def title(self) -> str:
        """As a user knows it."""
        return f"Helm {self.version} ({self.path})"

    def up(self, stack: Stack, definition: Path, *, read_from: Path | None = None, wait: bool = True) -> None:
        """Bring a stack up with its values; raise RolloutError when it is not as declared."""
        from charts import CHART, values_of

        read = read_definition(read_from or definition)
        rendered = render(stack, read.lock, read.file)
        kube = Kubectl(context_of(stack.data_plane))
        owner = ownership.require(kube, stack, "helm", adopt=self.adopt)
        _make_namespace(kube, stack, rendered)
        with lease.held(kube, stack.namespace):
            recover(self.path, kube, stack)
            gone = self._prepare(kube, stack, rendered)
            with _values(values_of(resolve(stack, read.lock))) as values:
                seconds = patience(rendered.objects)
                command = [
                    *(self.path, "upgrade", "--install", release_name(stack), str(CHART)),
                    *("--kube-context", kube.context, "--namespace", stack.namespace, "--values", str(values)),
                    # Server-side apply; what people changed by hand becomes as declared again.
                    *("--server-side=true", "--force-conflicts", "--timeout", f"{seconds}s"),
                    # Nobody sees the notes here, so nothing is looked up for them, and no rights are needed for that.
                    *("--hide-notes", "--set", "global.lookup=false"),
                    *(("--wait",) if wait else ()),
                ]
                failure = run_watched(command, kube, rendered.objects, watch=wait)
            if failure is not None:
                raise RolloutError(_why(failure, kube, stack))
            prune(kube, gone)
        if owner is not None and owner.engine == "pulumi":
            note(
                f"{stack.name} is Helm's now. Pulumi's state still lists its objects, and `pulumi destroy` would delete"
                f" them: let it forget them with `pulumi stack rm --force {stack.name}`, which deletes nothing."
            )

    def down(self, stack: Stack, definition: Path) -> None:
        """Uninstall a stack's release; the chart keeps volumes, claims and the namespace that holds them."""
        kube = Kubectl(context_of(stack.data_plane))
        if kube.get("namespace", stack.namespace) is None:
            return
        ownership.require(kube, stack, "helm")
        read = read_definition(definition)
        rendered = render(stack, read.lock, read.file)
        with lease.held(kube, stack.namespace):
            command = [
                *(self.path, "uninstall", release_name(stack), "--ignore-not-found", "--wait"),
                *("--kube-context", kube.context, "--namespace", stack.namespace, "--timeout", f"{_DOWN_SECONDS}s"),
            ]
            failure = run_watched(command, kube, rendered.objects, watch=False)
            if failure is not None:
                raise RolloutError(_why(failure, kube, stack))
            prune(kube, of_stack(kube, rendered.objects).everything)
            # What `helm test` left to be read: Helm takes hooks for nobody's.
            tests = ("--selector", "app.kubernetes.io/name=helm-test,app.kubernetes.io/part-of=tidegate")
            kube.run("delete", "pods,networkpolicies", "--namespace", stack.namespace, *tests, "--wait=false")

    def _prepare(self, kube: Kubectl, stack: Stack, rendered: Rendered) -> list[KubernetesObject]:
        """Make sure that what is there is the release's, and as it was made; return what is no longer declared."""
        there = of_stack(kube, rendered.objects)
        release = release_name(stack), stack.namespace
        strangers = [item for item in (*there.declared, *there.gone) if ownership.helm_release(item) != release]
        if strangers:
            ownership.require_ours(strangers, stack, kube.context, adopt=self.adopt)
            to_helm(kube, strangers, release)
            there = of_stack(kube, rendered.objects)
        keep_scale(kube, rendered.objects, there.declared)
        mend(kube, rendered.objects, there.declared)
        return there.gone


def find(adopt: bool = False) -> Helm:
    """Return the `helm` that is there, or is built; raise RolloutError when there is none."""
    try:
        found = tools.find("helm")
    except tools.ToolError as error:
        raise RolloutError(f"there is no Helm, and it cannot be built:\n{error}", NO_ENGINE) from None
    return Helm(str(found.path), found.version, adopt)


def patience(objects: Sequence[KubernetesObject]) -> int:
    """Return how many seconds an `up` may take: each workload rolls pod by pod, and big models load slowly."""
    most = {
        item["spec"]["scaleTargetRef"]["name"]: item["spec"].get("maxReplicas", item["spec"].get("maxReplicaCount", 1))
        for item in objects
        if item["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")
    }
    longest = 0
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            pod = item["spec"]["template"]["spec"]
            starts = sum(_start_seconds(one) for one in (*pod.get("initContainers", ()), *pod["containers"]))
            replicas = max(item["spec"].get("replicas", 1), most.get(item["metadata"]["name"], 1))
            longest = max(longest, replicas * (starts + pod.get("terminationGracePeriodSeconds", 30)))
    return max(_LEAST_SECONDS, longest + _MARGIN_SECONDS)


def _start_seconds(container: KubernetesObject) -> int:
    probe = container.get("startupProbe") or {}
    return int(probe.get("failureThreshold", 0) * probe.get("periodSeconds", 10))


def _make_namespace(kube: Kubectl, stack: Stack, rendered: Rendered) -> None:
    """Make the namespace before Helm needs it for its own records, as the release's own."""
    if kube.get("namespace", stack.namespace) is not None:
        return
    namespace = next(item for item in rendered.objects if item["kind"] == "Namespace")
    head = namespace["metadata"]
    owned = {
        **namespace,
        "metadata": {
            **head,
            "labels": {**head["labels"], "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {
                **head.get("annotations", {}),
                HELM_NAME: release_name(stack),
                HELM_NAMESPACE: stack.namespace,
            },
        },
    }
    kube.run("apply", "--server-side", "--field-manager=helm", "-f", "-", stdin=as_list([owned]))


@contextmanager
def _values(values: dict[str, object]) -> Iterator[Path]:
    """Yield a file with values that only this user can read; it is locked for as long as it is needed."""
    _remove_stale_values()
    descriptor, name = mkstemp(prefix=_VALUES_PREFIX, suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True)
            file.flush()
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


def _remove_stale_values() -> None:
    """Remove the values that killed processes of this user left: nobody holds the lock of such a file any more."""
    for path in Path(gettempdir()).glob(f"{_VALUES_PREFIX}*.yaml"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                found = os.fstat(descriptor)
                old = time.time() - found.st_mtime > _FRESH_SECONDS
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and old:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(descriptor)


def _why(said: str, kube: Kubectl, stack: Stack) -> str:
    """Return why Helm failed, and what to do where that is known."""
    lines = [line for line in said.splitlines() if "warnings.go" not in line and not line.startswith("level=")]
    said = "\n".join(lines) or said
    return explained(said, kube.context) or f"Helm did not bring {stack.name} to its end: {in_words(said)}"
