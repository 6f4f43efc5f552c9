"""A pool of Tritons: replicas on one kind of slice, and beside each on-demand one its eviction policy."""

from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import triton

from stacks.definition.base import CpuScaling
from stacks.definition.pools import QueueScaling

from .. import pods
from ..args import PoolContext, PulumiTimeouts, repository_root
from ..eviction import lease_ports, settings_map
from ..gpu_placement import GpuPlacement
from ..identity import pod_labels
from ..place import LOADING, ROLE
from ..values import either, joined, merged, of_kind, present, when
from .pod import pod
from .server import TritonServerArgs


class TritonPool(pulumi.ComponentResource):
    """A StatefulSet of Tritons with its Services, budget and autoscaler."""

    def __init__(self, name: str, pool: PoolContext, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a pool of a server; pods stay out of the mesh, where there is one."""
        super().__init__("tidegate:components:TritonPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        args, place, server = pool.args, pool.place, cast("TritonServerArgs", pool.server)
        timeouts = when(args.pulumi_timeouts, _custom_timeouts)
        placement = GpuPlacement(f"{name}-placement", args.placement, place, pool.name, pool.labels, child)
        repository = repository_root(server, triton.REPOSITORY_ROOT, lambda root: root)
        tls = present(server.triton.grpc_tls)
        settings = settings_map(name, pool, child, repository=repository, grpc_tls=tls)
        self._services(name, pool, timeouts, child)
        k8s.apps.v1.StatefulSet(
            f"{name}-servers",
            metadata=place.metadata(pool.name, pool.labels),
            spec=k8s.apps.v1.StatefulSetSpecArgs(
                service_name=pool.headless_name,
                # An autoscaler owns the number where there is one.
                replicas=either(args.autoscaling, lambda _: None, lambda: args.replicas),
                # Replicas share nothing: none needs to wait for another.
                pod_management_policy="Parallel",
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pool.selector),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    metadata=k8s.meta.v1.ObjectMetaArgs(
                        labels=merged(
                            pod_labels(server.identity),
                            pool.labels,
                            {ROLE: "server", LOADING: args.loading.mode},
                            when(
                                pool.domino,
                                lambda found: when(found.mesh, lambda _: {"sidecar.istio.io/inject": "false"}),
                            ),
                        )
                    ),
                    spec=pod(pool, server, placement),
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=when(settings, lambda made: [made]), custom_timeouts=timeouts
            ),
        )
        metadata = place.metadata(pool.name, pool.labels)
        pods.disruption_budget(f"{name}-budget", metadata, pool.selector, args.max_unavailable, child)
        of_kind(
            args.autoscaling,
            CpuScaling,
            lambda scaling: pods.cpu_autoscaler(f"{name}-autoscaler", "StatefulSet", metadata, scaling, child),
        )
        of_kind(
            args.autoscaling,
            QueueScaling,
            lambda scaling: _queue_autoscaler(f"{name}-queue-autoscaler", metadata, scaling, child),
        )
        self.register_outputs({})

    def _services(
        self, name: str, pool: PoolContext, timeouts: pulumi.CustomTimeouts | None, child: pulumi.ResourceOptions
    ) -> None:
        ports = [
            pods.service_port("http", triton.HTTP_PORT, "http"),
            pods.service_port("grpc", triton.GRPC_PORT, "grpc"),
        ]
        # Pulumi takes a Service for ready when its pods are: as long as for them.
        as_long = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(custom_timeouts=timeouts))
        metadata = pool.place.metadata(pool.name, pool.labels)
        pods.service(f"{name}-service", metadata, pool.selector, ports, as_long)
        metadata = pool.place.metadata(pool.headless_name, pool.labels)
        all_ports = joined(ports, lease_ports(pool))
        pods.service(f"{name}-headless", metadata, pool.selector, all_ports, child, cluster_ip="None")


def _queue_autoscaler(
    resource_name: str, metadata: Any, scaling: QueueScaling, opts: pulumi.ResourceOptions
) -> k8s.apiextensions.CustomResource:
    pods = f'namespace="{metadata.namespace}",pod=~"{metadata.name}-[0-9]+"'
    return k8s.apiextensions.CustomResource(
        resource_name,
        api_version="keda.sh/v1alpha1",
        kind="ScaledObject",
        metadata=metadata,
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": metadata.name},
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


def _custom_timeouts(seconds: PulumiTimeouts) -> pulumi.CustomTimeouts:
    return pulumi.CustomTimeouts(create=f"{seconds.ready}s", update=f"{seconds.updated}s")
