"""A dataset: a PersistentVolume, and the claim with which an environment's servers mount it."""

import pulumi
import pulumi_kubernetes as k8s

from stacks.definition.datasets import CsiSource, HostPathSource, NfsSource

from .args import DatasetVolumeArgs
from .naming import RETAINED, Naming
from .values import either, none_if_empty, of_kind, when

# The requested size of a claim. It has no effect, because the claim names its volume. It must not follow the capacity
# of the dataset: Kubernetes refuses to change it for a volume that no driver provisioned.
_REQUEST = "1Mi"


class DatasetVolume(pulumi.ComponentResource):
    """A PersistentVolume and its claim, bound to each other. Both are protected, and Pulumi keeps them when it destroys
    the stack, because the volume holds models."""

    def __init__(
        self, name: str, args: DatasetVolumeArgs, naming: Naming, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("tidegate:components:DatasetVolume", name, None, opts)
        kept = pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True)
        volume_name = f"{naming.namespace}-{args.name}"
        labels = naming.labels("dataset")
        volume = k8s.core.v1.PersistentVolume(
            f"{name}-volume",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=volume_name, labels=labels, annotations=RETAINED),
            spec=k8s.core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": args.capacity},
                access_modes=[args.access_mode],
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=args.storage_class,
                mount_options=none_if_empty(args.mount_options),
                # Reserves the volume for this claim.
                claim_ref=k8s.core.v1.ObjectReferenceArgs(
                    api_version="v1", kind="PersistentVolumeClaim", namespace=naming.namespace, name=args.name
                ),
                csi=of_kind(args.source, CsiSource, lambda source: _csi(source, naming)),
                nfs=of_kind(
                    args.source,
                    NfsSource,
                    lambda nfs: k8s.core.v1.NFSVolumeSourceArgs(server=nfs.server, path=nfs.path),
                ),
                host_path=of_kind(
                    args.source,
                    HostPathSource,
                    lambda folder: k8s.core.v1.HostPathVolumeSourceArgs(path=folder.path, type="Directory"),
                ),
            ),
            opts=kept,
        )
        k8s.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            metadata=naming.metadata(args.name, labels, RETAINED),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=[args.access_mode],
                # An empty text prevents the cluster's default class.
                storage_class_name=either(args.storage_class, lambda name: name, lambda: ""),
                volume_name=volume_name,
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": _REQUEST}),
            ),
            opts=pulumi.ResourceOptions.merge(kept, pulumi.ResourceOptions(depends_on=[volume])),
        )
        self.register_outputs({})


def _csi(source: CsiSource, naming: Naming) -> k8s.core.v1.CSIPersistentVolumeSourceArgs:
    return k8s.core.v1.CSIPersistentVolumeSourceArgs(
        driver=source.driver,
        volume_handle=source.volume_handle,
        volume_attributes=none_if_empty(source.volume_attributes),
        fs_type=source.fs_type,
        node_publish_secret_ref=when(
            source.node_publish_secret,
            lambda secret: k8s.core.v1.SecretReferenceArgs(name=secret, namespace=naming.namespace),
        ),
    )
