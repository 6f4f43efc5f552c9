"""Autoscalers of pools that KEDA scales with queries to Prometheus."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from stacks.definition.pools import QueueScaling

from .values import if_true, merged

_WAKING_SECONDS = 5  # KEDA checks this often whether callers wait for a pool that has no replica.


def queue_autoscaler(
    resource_name: str,
    metadata: k8s.meta.v1.ObjectMetaArgs,
    scaling: QueueScaling,
    triggers: list[dict[str, Any]],
    opts: pulumi.ResourceOptions,
) -> k8s.apiextensions.CustomResource:
    """Declare the ScaledObject of the StatefulSet with this metadata. The trigger with most replicas wins."""
    one_step = [{"type": "Pods", "value": 1, "periodSeconds": scaling.step_seconds}]
    # Both keys matter only if a pool may have no replica: when the first one starts, and when the last one stops.
    to_zero = {"pollingInterval": _WAKING_SECONDS, "cooldownPeriod": scaling.down_seconds}
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata=metadata,
        # Pulumi sends a null in a custom resource to the cluster, so a key without a value is left out.
        spec=merged(
            {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": metadata.name},
                "minReplicaCount": scaling.min,
                "maxReplicaCount": scaling.max,
                "advanced": {
                    "horizontalPodAutoscalerConfig": {
                        "behavior": {
                            "scaleUp": {"policies": one_step},
                            "scaleDown": {"stabilizationWindowSeconds": scaling.down_seconds, "policies": one_step},
                        }
                    }
                },
                "triggers": triggers,
            },
            if_true(scaling.min, lambda: None, lambda: to_zero),
        ),
        opts=opts,
    )


def trigger(scaling: QueueScaling, query: str, threshold: str, metric_type: str = "Value") -> dict[str, Any]:
    """Return a trigger: a query and its threshold, which is for all replicas (Value) or for each (AverageValue)."""
    return {
        "type": "prometheus",
        "metricType": metric_type,
        "metadata": {
            "serverAddress": scaling.prometheus_address,
            "query": query,
            "threshold": threshold,
            # A query without a result must not scale to the minimum.
            "ignoreNullValues": "false",
        },
    }
