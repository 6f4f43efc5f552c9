"""Autoscalers: by CPU use (HorizontalPodAutoscaler), or by time in Triton's queue (KEDA)."""

from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_kubernetes as k8s

from .fields import Count, HttpUrl, Percent, Replicas
from .place import Place, Texts


@dataclass(frozen=True, kw_only=True)
class CpuScalingArgs:
    """Replicas follow CPU use."""

    kind: Literal["cpu"] = "cpu"
    """By CPU use."""
    min: Replicas
    """Replicas at the least."""
    max: Replicas
    """Replicas at the most."""
    cpu_percent: Percent
    """CPU use, in per cent of what is asked for, that the autoscaler aims at."""


@dataclass(frozen=True, kw_only=True)
class QueueScalingArgs:
    """Replicas follow the time that requests wait in Triton's queues; needs KEDA and Prometheus."""

    kind: Literal["queue"] = "queue"
    """By time in the queue."""
    min: Replicas
    """Replicas at the least."""
    max: Replicas
    """Replicas at the most."""
    queue_milliseconds: Count
    """Mean time in the queue, in milliseconds a request, that the autoscaler aims at."""
    prometheus_address: HttpUrl
    """Address of the Prometheus server that KEDA asks."""


def cpu_autoscaler(
    resource_name: str,
    name: str,
    place: Place,
    labels: Texts,
    kind: str,
    scaling: CpuScalingArgs,
    opts: pulumi.ResourceOptions,
) -> k8s.autoscaling.v2.HorizontalPodAutoscaler:
    """Declare an autoscaler of the workload of the same name."""
    return k8s.autoscaling.v2.HorizontalPodAutoscaler(
        resource_name,
        metadata=place.metadata(name, labels),
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
    name: str,
    place: Place,
    labels: Texts,
    scaling: QueueScalingArgs,
    opts: pulumi.ResourceOptions,
) -> k8s.apiextensions.CustomResource:
    """Declare a KEDA ScaledObject of the StatefulSet of the same name."""
    pods = f'namespace="{place.namespace}",pod=~"{name}-[0-9]+"'
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata=place.metadata(name, labels),
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
                        # Mean time in the queue of a request of the last two minutes, in milliseconds.
                        "query": f"sum(rate(nv_inference_queue_duration_us{{{pods}}}[2m])) / 1000"
                        f" / clamp_min(sum(rate(nv_inference_request_success{{{pods}}}[2m])), 0.001)",
                        "threshold": f"{scaling.queue_milliseconds}",
                        # A query without a result must not scale to the minimum: it says nothing.
                        "ignoreNullValues": "false",
                    },
                }
            ],
        },
        opts=opts,
    )
