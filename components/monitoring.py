"""Metrics and alerts, for the Prometheus operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input
from tidegate_contracts import eviction_process, proxy_process, triton

from .pods import metadata
from .values import Labels, each, when


@dataclass(frozen=True, kw_only=True)
class AlertArgs:
    """One alert rule."""

    name: Input[str]
    expression: Input[str]
    duration: Input[str]
    severity: Input[str]
    summary: Input[str]


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """What is watched, and when somebody is told."""

    namespace: Input[str]
    labels: Labels
    """With those by which the operator finds the objects."""
    interval: Input[str]
    proxy_selector: Labels
    server_selector: Labels
    on_demand_selector: Labels
    alerts: Sequence[AlertArgs] | None = None


class Monitoring(pulumi.ComponentResource):
    """PodMonitors for proxies, Tritons and eviction policies, and a PrometheusRule."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare monitors and alerts."""
        super().__init__("tidegate:components:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)

        def monitor(suffix: str, selector: Labels, port: str, path: str) -> None:
            k8s.apiextensions.CustomResource(
                f"{name}-{suffix}",
                api_version="monitoring.coreos.com/v1",
                kind="PodMonitor",
                metadata=metadata(suffix, args.namespace, args.labels),
                spec={
                    "selector": {"matchLabels": selector},
                    "podMetricsEndpoints": [{"port": port, "path": path, "interval": args.interval}],
                },
                opts=child,
            )

        monitor("inference-proxy", args.proxy_selector, "admin", proxy_process.METRICS_PATH)
        monitor("inference-servers", args.server_selector, "metrics", triton.METRICS_PATH)
        monitor("eviction-policies", args.on_demand_selector, "policy-admin", eviction_process.METRICS_PATH)
        when(
            args.alerts,
            lambda alerts: k8s.apiextensions.CustomResource(
                f"{name}-alerts",
                api_version="monitoring.coreos.com/v1",
                kind="PrometheusRule",
                metadata=metadata("tidegate", args.namespace, args.labels),
                spec={"groups": [{"name": "tidegate", "rules": each(alerts, _rule)}]},
                opts=child,
            ),
        )
        self.register_outputs({})


def _rule(alert: AlertArgs) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.duration,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary},
    }
