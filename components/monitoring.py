"""Metrics and alerts, for the Prometheus operator."""

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, openai, proxy_process, triton

from stacks.definition.environment import Monitoring as MonitoringSettings
from stacks.definition.proxy import PROXY

from .alert_rules import alert_rules
from .dashboards import DASHBOARDS
from .naming import Naming, Texts
from .values import if_true, merged


class Monitoring(pulumi.ComponentResource):
    """PodMonitors for proxies, Triton servers and eviction policies, and a PrometheusRule."""

    def __init__(
        self, name: str, args: MonitoringSettings, naming: Naming, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tidegate:components:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        labels = merged(args.labels, naming.labels("monitoring"))

        def monitor(suffix: str, selector: Texts, port: str, path: str) -> None:
            k8s.apiextensions.CustomResource(
                f"{name}-{suffix}",
                api_version="monitoring.coreos.com/v1",
                kind="PodMonitor",
                metadata=naming.metadata(suffix, labels),
                spec={
                    "selector": {"matchLabels": selector},
                    "podMetricsEndpoints": [{"port": port, "path": path, "interval": f"{args.interval_seconds}s"}],
                },
                opts=child,
            )

        monitor(PROXY, naming.proxy_selector, "admin", proxy_process.METRICS_PATH)
        for number, path in enumerate(dict.fromkeys((triton.METRICS_PATH, openai.METRICS_PATH))):
            suffix = f"-{number + 1}" if number else ""
            monitor(f"inference-servers{suffix}", naming.server_selector, "metrics", path)
        monitor("eviction-policies", naming.on_demand_selector, "policy-admin", eviction_process.METRICS_PATH)
        rules = alert_rules(naming, args.objectives, args.runbooks)
        if_true(
            args.rules,
            lambda: k8s.apiextensions.CustomResource(
                f"{name}-alerts",
                api_version="monitoring.coreos.com/v1",
                kind="PrometheusRule",
                metadata=naming.metadata("tidegate", labels),
                spec={"groups": [{"name": "tidegate", "rules": rules}]},
                opts=child,
            ),
        )
        if_true(args.dashboards, lambda: dashboards(name, args.dashboard_labels, naming, child))
        self.register_outputs({})


def dashboards(name: str, labels: Texts, naming: Naming, opts: pulumi.ResourceOptions) -> None:
    """Declare the Grafana dashboards of the environment, one ConfigMap for each."""
    all_labels = merged(labels, naming.labels("monitoring"))
    for dashboard in DASHBOARDS:
        k8s.core.v1.ConfigMap(
            f"{name}-dashboard-{dashboard.name}",
            metadata=naming.metadata(f"tidegate-dashboard-{dashboard.name}", all_labels),
            data={f"tidegate-{naming.namespace}-{dashboard.name}.json": dashboard.written(naming.namespace)},
            opts=opts,
        )
