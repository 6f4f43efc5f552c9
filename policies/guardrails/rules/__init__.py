"""The rules, in the order of docs/guardrails.md."""

from collections.abc import Mapping

from ..rule import Rule
from . import access, credentials, datasets, exposure, gpu, pod_security, workloads

RULES: tuple[Rule, ...] = (
    workloads.images_are_pinned_by_digest,
    exposure.nothing_bypasses_the_proxy,
    pod_security.pods_fulfil_pod_security_restricted,
    datasets.datasets_are_mounted_read_only,
    datasets.production_shares_nothing_that_others_may_write,
    datasets.volumes_are_retained,
    gpu.gpu_pods_have_limit_selector_and_toleration_that_agree,
    gpu.gpu_slices_stay_under_their_ceiling,
    credentials.secrets_are_never_inline,
    workloads.every_container_has_probes,
    workloads.every_workload_has_a_budget,
    workloads.grace_periods_hold_pause_and_stop,
    workloads.autoscalers_own_the_number_of_replicas,
    access.access_rules_name_their_callers,
    access.access_rules_name_servers_or_models,
)

BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
