"""The rules: each is a function whose name is the rule, over the objects of one environment.

The first line of its docstring is the sentence that people read; the rest says why it matters.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..findings import Breach
from ..objects import Environment
from ..settings import Kind, Severity
from . import access, credentials, datasets, exposure, gpu, images, pod_security, workloads


@dataclass(frozen=True)
class Rule:
    """A function, how severe a breach of it is by default, and what to do about one; None: it is not asked."""

    function: Callable[[Environment], Iterator[Breach]]
    production: Severity
    shared: Severity | None
    local: Severity | None
    do: str

    @property
    def name(self) -> str:
        """The function's name, with dashes."""
        return self.function.__name__.replace("_", "-")

    @property
    def sentence(self) -> str:
        """What the rule says."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]

    @property
    def why(self) -> str:
        """Why it matters."""
        return " ".join((inspect.getdoc(self.function) or "").partition("\n")[2].split())

    def severity(self, kind: Kind) -> Severity | None:
        """Return its severity in environments of this kind; None where it is not asked."""
        return {"production": self.production, "shared": self.shared, "local": self.local}[kind]


RULES: tuple[Rule, ...] = (
    Rule(
        images.images_are_pinned_by_digest,
        "mandatory",
        "advisory",
        None,
        "Run `make pin` where the registry can be reached; in a values file, write image: repository:tag@sha256:….",
    ),
    Rule(
        exposure.nothing_bypasses_the_proxy,
        "mandatory",
        "mandatory",
        "advisory",
        "Expose the proxy instead, with proxy.exposure; leave the servers' Services of type ClusterIP.",
    ),
    Rule(
        pod_security.pods_fulfil_pod_security_restricted,
        "mandatory",
        "mandatory",
        "mandatory",
        "Give the pod what the standard wants: https://kubernetes.io/docs/concepts/security/pod-security-standards.",
    ),
    Rule(
        datasets.datasets_are_mounted_read_only,
        "mandatory",
        "advisory",
        "advisory",
        "Set readOnly: true on the volume or on every mount of it; let a pipeline of its own publish models.",
    ),
    Rule(
        datasets.production_shares_nothing_that_others_may_write,
        "mandatory",
        None,
        None,
        "Give production a dataset, folder or bucket of its own.",
    ),
    Rule(
        datasets.volumes_are_retained,
        "mandatory",
        "mandatory",
        "advisory",
        "Set persistentVolumeReclaimPolicy: Retain.",
    ),
    Rule(
        gpu.gpu_pods_have_limit_selector_and_toleration_that_agree,
        "mandatory",
        "mandatory",
        "mandatory",
        "Let them all follow from one placement, as the definition does.",
    ),
    Rule(
        gpu.gpu_slices_stay_under_their_ceiling,
        "mandatory",
        "mandatory",
        "mandatory",
        "Take fewer replicas, or raise guardrails.gpuSlices with whoever pays.",
    ),
    Rule(
        credentials.secrets_are_never_inline,
        "mandatory",
        "mandatory",
        "advisory",
        "Put it into a Secret that somebody else makes, and name that; revoke what has been committed already.",
    ),
    Rule(
        workloads.every_container_has_probes,
        "mandatory",
        "advisory",
        "advisory",
        "Give it the probe that is missing.",
    ),
    Rule(
        workloads.every_workload_has_a_budget,
        "mandatory",
        "advisory",
        "advisory",
        "Give it one PodDisruptionBudget with maxUnavailable: 1 or more.",
    ),
    Rule(
        workloads.grace_periods_hold_pause_and_stop,
        "mandatory",
        "advisory",
        "advisory",
        "Raise terminationGracePeriodSeconds, or lower the pause or the time to stop.",
    ),
    Rule(
        workloads.autoscalers_own_the_number_of_replicas,
        "mandatory",
        "mandatory",
        "advisory",
        "Leave replicas out where there is an autoscaler, and let there be one.",
    ),
    Rule(
        access.access_rules_name_their_callers,
        "mandatory",
        None,
        None,
        "Name the principals or groups.",
    ),
    Rule(
        access.access_rules_name_servers_or_models,
        "mandatory",
        None,
        None,
        "Name servers or models in proxy.access; whoever really may use all that there will ever be gets a waiver.",
    ),
)

BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
