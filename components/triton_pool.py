"""A pool of Tritons: replicas on one kind of slice, and beside each on-demand one its eviction policy."""

import pulumi
import pulumi_kubernetes as k8s
from tidegate_contracts import eviction_process, triton

from . import pods
from .domino import DominoArgs
from .fields import Image
from .files import eviction_settings
from .gpu_placement import GpuPlacement
from .identity import pod_labels
from .place import LOADING, ROLE, Place
from .scaling import CpuScalingArgs, QueueScalingArgs, cpu_autoscaler, queue_autoscaler
from .triton_pod import Pool, pod
from .triton_server import OnDemandArgs, TritonPoolArgs, TritonServerArgs
from .values import either, joined, json_text, merged, of_kind, when


class TritonPool(pulumi.ComponentResource):
    """A StatefulSet of Tritons with its Services, budget and autoscaler."""

    def __init__(
        self,
        name: str,
        args: TritonPoolArgs,
        server: TritonServerArgs,
        place: Place,
        policy_image: Image | None,
        domino: DominoArgs | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a pool of a server; pods stay out of the mesh, where there is one."""
        super().__init__("tidegate:components:TritonPool", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        timeouts = when(args.patience, lambda patience: patience.timeouts)
        pool = Pool(args, server, place, policy_image)
        placement = GpuPlacement(f"{name}-placement", args.placement, place, pool.name, pool.labels, child)
        settings = of_kind(
            args.loading,
            OnDemandArgs,
            lambda loading: k8s.core.v1.ConfigMap(
                f"{name}-eviction",
                metadata=place.metadata(pool.eviction_name, pool.labels),
                data={eviction_process.SETTINGS_FILE: json_text(eviction_settings(server, args, loading))},
                opts=child,
            ),
        )
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
                                domino, lambda found: when(found.mesh, lambda _: {"sidecar.istio.io/inject": "false"})
                            ),
                        )
                    ),
                    spec=pod(pool, placement),
                ),
            ),
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=when(settings, lambda made: [made]), custom_timeouts=timeouts
            ),
        )
        k8s.policy.v1.PodDisruptionBudget(
            f"{name}-budget",
            metadata=place.metadata(pool.name, pool.labels),
            spec=pods.disruption_budget_spec(pool.selector, args.max_unavailable),
            opts=child,
        )
        of_kind(
            args.autoscaling,
            CpuScalingArgs,
            lambda scaling: cpu_autoscaler(
                f"{name}-autoscaler", pool.name, place, pool.labels, "StatefulSet", scaling, child
            ),
        )
        of_kind(
            args.autoscaling,
            QueueScalingArgs,
            lambda scaling: queue_autoscaler(f"{name}-queue-autoscaler", pool.name, place, pool.labels, scaling, child),
        )
        self.register_outputs({})

    def _services(
        self, name: str, pool: Pool, timeouts: pulumi.CustomTimeouts | None, child: pulumi.ResourceOptions
    ) -> None:
        ports = [
            pods.service_port("http", triton.HTTP_PORT, "http"),
            pods.service_port("grpc", triton.GRPC_PORT, "grpc"),
        ]
        k8s.core.v1.Service(
            f"{name}-service",
            metadata=pool.place.metadata(pool.name, pool.labels),
            spec=k8s.core.v1.ServiceSpecArgs(selector=pool.selector, ports=ports),
            # Pulumi takes a Service for ready when its pods are: as long as for them.
            opts=pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(custom_timeouts=timeouts)),
        )
        lease = of_kind(
            pool.args.loading,
            OnDemandArgs,
            lambda _: [pods.service_port("lease", eviction_process.LEASE_PORT, eviction_process.LEASE_PORT)],
        )
        k8s.core.v1.Service(
            f"{name}-headless",
            metadata=pool.place.metadata(pool.headless_name, pool.labels),
            spec=k8s.core.v1.ServiceSpecArgs(cluster_ip="None", selector=pool.selector, ports=joined(ports, lease)),
            opts=child,
        )
