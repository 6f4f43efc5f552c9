"""Autoscalers: by CPU use (HorizontalPodAutoscaler), or by time in Triton's queue (KEDA)."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input

from .pods import metadata
from .values import Labels


@dataclass(frozen=True, kw_only=True)
class CpuScalingArgs:
    """Bounds, and the CPU use in per cent of the request that is aimed at."""

    min: Input[int]
    max: Input[int]
    cpu_percent: Input[int]


@dataclass(frozen=True, kw_only=True)
class QueueScalingArgs:
    """Bounds, and the Prometheus query whose value a replica should not exceed."""

    min: Input[int]
    max: Input[int]
    prometheus_address: Input[str]
    query: Input[str]
    threshold: Input[str]


def cpu_autoscaler(
    resource_name: str,
    name: Input[str],
    namespace: Input[str],
    labels: Labels,
    kind: str,
    scaling: CpuScalingArgs,
    opts: pulumi.ResourceOptions,
) -> k8s.autoscaling.v2.HorizontalPodAutoscaler:
    """Declare an autoscaler of the workload of the same name."""
    return k8s.autoscaling.v2.HorizontalPodAutoscaler(
        resource_name,
        metadata=metadata(name, namespace, labels),
        spec=k8s.autoscaling.v2.HorizontalPodAutoscalerSpecArgs(
            scale_target_ref=k8s.autoscaling.v2.CrossVersionObjectReferenceArgs(
                api_version="apps/v1", kind=kind, name=name
            ),
            min_replicas=scaling.min,
            max_replicas=scaling.max,
            metrics=[
                k8s.autoscaling.v2.MetricSpecArgs(
                    type="Resource",
                    resource=k8s.autoscaling.v2.ResourceMetricSourceArgs(
                        name="cpu",
                        target=k8s.autoscaling.v2.MetricTargetArgs(
                            type="Utilization", average_utilization=scaling.cpu_percent
                        ),
                    ),
                )
            ],
        ),
        opts=opts,
    )


def queue_autoscaler(
    resource_name: str,
    name: Input[str],
    namespace: Input[str],
    labels: Labels,
    scaling: QueueScalingArgs,
    opts: pulumi.ResourceOptions,
) -> k8s.apiextensions.CustomResource:
    """Declare a KEDA ScaledObject of the StatefulSet of the same name."""
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata=metadata(name, namespace, labels),
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name},
            "minReplicaCount": scaling.min,
            "maxReplicaCount": scaling.max,
            "triggers": [
                {
                    "type": "prometheus",
                    # The query gives a mean over all replicas, not a sum that would be divided among them.
                    "metricType": "Value",
                    "metadata": {
                        "serverAddress": scaling.prometheus_address,
                        "query": scaling.query,
                        "threshold": scaling.threshold,
                        # A query without a result must not scale to the minimum: it says nothing.
                        "ignoreNullValues": "false",
                    },
                }
            ],
        },
        opts=opts,
    )
