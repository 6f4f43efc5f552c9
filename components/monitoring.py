"""Metrics and alerts, for the Prometheus operator."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, proxy_process

from stacks.definition.environment import Monitoring as MonitoringSettings
from stacks.definition.proxy import PROXY

from .alerts import alert
from .kinds import KINDS
from .place import Place, Texts
from .values import if_true, merged


class Monitoring(pulumi.ComponentResource):
    """PodMonitors for proxies, Tritons and eviction policies, and a PrometheusRule."""

    def __init__(
        self, name: str, args: MonitoringSettings, place: Place, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare monitors and alerts."""
        super().__init__("tidegate:components:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        labels = merged(args.labels, place.labels("monitoring"))

        def monitor(suffix: str, selector: Texts, port: str, path: str) -> None:
            k8s.apiextensions.CustomResource(
                f"{name}-{suffix}",
                api_version="monitoring.coreos.com/v1",
                kind="PodMonitor",
                metadata=place.metadata(suffix, labels),
                spec={
                    "selector": {"matchLabels": selector},
                    "podMetricsEndpoints": [{"port": port, "path": path, "interval": f"{args.interval_seconds}s"}],
                },
                opts=child,
            )

        monitor(PROXY, place.proxy_selector, "admin", proxy_process.METRICS_PATH)
        for number, path in enumerate(dict.fromkeys(kind.metrics_path for kind in KINDS.values())):
            suffix = f"-{number + 1}" if number else ""
            monitor(f"inference-servers{suffix}", place.server_selector, "metrics", path)
        monitor("eviction-policies", place.on_demand_selector, "policy-admin", eviction_process.METRICS_PATH)
        if_true(
            args.rules,
            lambda: k8s.apiextensions.CustomResource(
                f"{name}-alerts",
                api_version="monitoring.coreos.com/v1",
                kind="PrometheusRule",
                metadata=place.metadata("tidegate", labels),
                spec={"groups": [{"name": "tidegate", "rules": _alerts(place)}]},
                opts=child,
            ),
        )
        self.register_outputs({})


def _alerts(place: Place) -> list[dict[str, Any]]:
    """Return alerts on what servers, the proxy, the eviction policy and Prometheus itself measure.

    A series that is missing is no zero: a server that cannot be read shows as `up`, not as quiet.
    """
    here = f'namespace="{place.namespace}"'
    return [
        alert(
            "TidegateTargetDown",
            f"up{{{here}}} == 0",
            "A proxy, Triton or eviction policy has not answered Prometheus for five minutes.",
            severity="critical",
        ),
        alert(
            "TidegatePoolGone",
            f"tidegate_proxy_pool_ready{{{here}}} == 0",
            "Calls of a pool's models find no replica: none is there, answers, or keeps answering.",
            severity="critical",
        ),
        *(rule for kind in KINDS.values() for rule in kind.alerts(here)),
        alert(
            "TidegateTableRefused",
            f"tidegate_proxy_config_good{{{here}}} == 0 or tidegate_eviction_settings_good{{{here}}} == 0",
            "A proxy or eviction policy refuses its table and goes on with the last good one: see its log.",
        ),
        alert(
            "TidegateLoadFailed",
            f"tidegate_proxy_load_failures{{{here}}} > 0",
            "A Triton could not load versions of models that lie in its repository: the proxy's log says why.",
        ),
        alert(
            "TidegateModelQuarantined",
            f'tidegate_eviction_models{{{here}, state="quarantined"}} > 0',
            "Models failed to load too often and are not tried any more; the policy's list says which.",
        ),
        alert(
            "TidegateMemoryLeaks",
            f"increase(tidegate_eviction_recycles_total{{{here}}}[6h]) > 2",
            "A Triton was restarted three times in six hours for memory that models did not give back.",
        ),
        alert(
            "TidegateMemoryUnseen",
            f'tidegate_eviction_memory_source{{{here}, source="none"}} == 1',
            "An eviction policy cannot read how much memory is in use: it trusts declared sizes alone.",
            lasting="15m",
        ),
    ]
