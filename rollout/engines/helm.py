"""Helm: installs the generated chart with a stack's values.

Environment variables, which are the user's and are handed on as they are: KUBECONFIG, and Helm's own (HELM_…). Only
HELM_DRIVER must not name another place for Helm's records than Secrets: they are read here too.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lab import tools
from stacks.command import NO_ENGINE, WRONG_INPUT, CommandError
from stacks.problems import escaped
from stacks.resolve import resolve
from stacks.stack import Stack

from ..contexts import context_of
from ..handover import HELM_NAME, HELM_NAMESPACE, keep_scale, mend, prune, to_helm
from ..kubectl import Kubectl, KubernetesObject, as_list
from ..live import LiveState, as_declared, of_stack
from ..refusals import explained, in_words
from ..render import Rendered
from ..terminal import note
from . import lease, ownership
from .bundle import Bundle
from .helm_release import is_of, recover, release_name
from .watched import await_ready, run_watched

_MARGIN_SECONDS = 300
_LEAST_SECONDS = 600
_DOWN_SECONDS = 600
_DRIVERS = ("", "secret", "secrets")
"""What HELM_DRIVER may say."""


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

    def check(self, stack: Stack, rendered: Rendered) -> None:
        """Raise CommandError where `up` would refuse a stack before it changes anything."""
        kube = Kubectl(context_of(stack.data_plane))
        if ownership.require(kube, stack, "helm", adopt=self.adopt) is not None:
            live = of_stack(kube, rendered.objects)
            if strangers := _strangers(live, stack):
                ownership.require_ours(strangers, stack, kube.context, adopt=self.adopt)

    def up(self, bundle: Bundle, *, wait: bool = True) -> bool:
        """Bring a stack up with its values; raise CommandError when it is not as declared.

        A stack that stands as declared is only waited for, and False is returned: no revision is made.
        """
        from charts import CHART, values_of

        stack, objects = bundle.stack, bundle.rendered.objects
        kube = Kubectl(context_of(stack.data_plane))
        owner = ownership.require(kube, stack, "helm", adopt=self.adopt)
        if owner is None:
            _make_namespace(kube, stack, bundle.rendered)
        # Nobody sees the notes here, so nothing is looked up for them, and no rights are needed for that.
        values = {**values_of(resolve(stack, bundle.lock)), "global": {"lookup": False}}
        seconds = patience(objects)
        with lease.held(kube, stack.namespace) as hold:
            with ThreadPoolExecutor(1) as beside:
                looking = beside.submit(of_stack, kube, objects)
                newest, mended = recover(self.path, kube, stack)
            live = of_stack(kube, objects) if mended else looking.result()
            stands = (
                newest is not None
                and is_of(newest, CHART, values)
                and not _strangers(live, stack)
                and as_declared(kube, live, objects)
            )
            if not stands:
                gone = self._prepare(kube, stack, bundle.rendered, live)
                command = [
                    *(self.path, "upgrade", "--install", release_name(stack), str(CHART)),
                    *("--kube-context", kube.context, "--namespace", stack.namespace),
                    *("--values", "-"),  # by its standard input: what stands in them is nobody else's business
                    # Server-side apply; what people changed by hand becomes as declared again.
                    *("--server-side=true", "--force-conflicts", "--timeout", f"{seconds}s"),
                    "--hide-notes",
                    *(("--wait",) if wait else ()),
                ]
                failure = run_watched(command, kube, objects, hold, stdin=json.dumps(values), watch=wait)
                if failure is not None:
                    raise CommandError(_why(failure, kube, stack))
                hold.require()
                prune(kube, gone)
        if stands:
            failure = await_ready(kube, objects, seconds) if wait else None
            if failure is not None:
                raise CommandError(f"nothing was changed, and {failure}")
        if owner is not None and owner.engine == "pulumi":
            note(
                f"{stack.name} is Helm's now. Pulumi's state still lists its objects, and `pulumi destroy` would delete"
                " them: let it forget them, which deletes nothing, with"
                f" `pulumi stack rm --force --preserve-config {stack.name}`."
            )
        return not stands

    def down(self, bundle: Bundle) -> None:
        """Uninstall a stack's release; the chart keeps volumes, claims and the namespace that holds them."""
        stack, objects = bundle.stack, bundle.rendered.objects
        kube = Kubectl(context_of(stack.data_plane))
        if ownership.require(kube, stack, "helm") is None:
            return
        with lease.held(kube, stack.namespace) as hold:
            command = [
                *(self.path, "uninstall", release_name(stack), "--ignore-not-found", "--wait"),
                *("--kube-context", kube.context, "--namespace", stack.namespace, "--timeout", f"{_DOWN_SECONDS}s"),
            ]
            failure = run_watched(command, kube, objects, hold, watch=False)
            if failure is not None:
                raise CommandError(_why(failure, kube, stack))
            hold.require()
            release = release_name(stack), stack.namespace
            left = of_stack(kube, objects).everything
            prune(kube, [item for item in left if not ownership.is_of_another(item, release)])
            # What `helm test` left to be read: Helm takes hooks for nobody's.
            tests = ("--selector", "app.kubernetes.io/name=helm-test,app.kubernetes.io/part-of=tidegate")
            kube.run("delete", "pods,networkpolicies", "--namespace", stack.namespace, *tests, "--wait=false")

    def _prepare(self, kube: Kubectl, stack: Stack, rendered: Rendered, live: LiveState) -> list[KubernetesObject]:
        """Make sure that what is there is the release's, and as it was made; return what is no longer declared."""
        if strangers := _strangers(live, stack):
            ownership.require_ours(strangers, stack, kube.context, adopt=self.adopt)
            to_helm(kube, strangers, (release_name(stack), stack.namespace))
            live = of_stack(kube, rendered.objects)
        keep_scale(kube, rendered.objects, live.declared)
        mend(kube, rendered.objects, live.declared)
        return live.gone


def find(adopt: bool = False) -> Helm:
    """Return the `helm` that is there, or is built; raise CommandError when there is none."""
    driver = os.environ.get("HELM_DRIVER", "")
    if driver not in _DRIVERS:
        raise CommandError(
            f"HELM_DRIVER is {escaped(driver)}, and Tidegate knows only Helm releases that are kept in Secrets: unset"
            " it, or bring the stack up with `helm upgrade --install` (docs/helm.md).",
            WRONG_INPUT,
        )
    try:
        found = tools.find("helm")
    except tools.ToolError as error:
        raise CommandError(f"there is no Helm, and it cannot be built:\n{error}", NO_ENGINE) from None
    return Helm(str(found.path), found.version, adopt)


def _strangers(live: LiveState, stack: Stack) -> list[KubernetesObject]:
    """Return what is there of a stack and is not its release's."""
    release = release_name(stack), stack.namespace
    return [item for item in (*live.declared, *live.gone) if ownership.helm_release(item) != release]


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


def _why(said: str, kube: Kubectl, stack: Stack) -> str:
    """Return why Helm failed, and what to do where that is known."""
    lines = [line for line in said.splitlines() if "warnings.go" not in line and not line.startswith("level=")]
    said = "\n".join(lines) or said
    return explained(said, kube.context) or f"Helm did not bring {stack.name} to its end: {in_words(said)}"
