"""A dataset: a PersistentVolume that stands ready, and the claim through which an environment's servers mount it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s
from pulumi import Input

from .pods import metadata
from .values import Labels, when

# What a claim asks for. Its volume is named, so the size does not matter; but Kubernetes lets nobody change it on a
# volume that no driver provisioned, and another capacity of a dataset must stay an ordinary edit.
_REQUEST = "1Mi"


@dataclass(frozen=True, kw_only=True)
class SecretReferenceArgs:
    """A secret that a driver reads when it mounts."""

    name: Input[str]
    namespace: Input[str]


@dataclass(frozen=True, kw_only=True)
class CsiSourceArgs:
    """A volume of a CSI driver."""

    driver: Input[str]
    volume_handle: Input[str]
    volume_attributes: Labels | None = None
    fs_type: Input[str] | None = None
    node_publish_secret: SecretReferenceArgs | None = None


@dataclass(frozen=True, kw_only=True)
class NfsSourceArgs:
    """An NFS export."""

    server: Input[str]
    path: Input[str]


@dataclass(frozen=True, kw_only=True)
class HostPathSourceArgs:
    """A folder of the node."""

    path: Input[str]


@dataclass(frozen=True, kw_only=True)
class DatasetVolumeArgs:
    """One dataset; exactly one of `csi`, `nfs` and `host_path` is its source."""

    name: Input[str]
    """Name of the volume: unique in the cluster."""
    claim_name: str
    namespace: Input[str]
    labels: Labels
    capacity: Input[str]
    access_modes: Sequence[Input[str]]
    storage_class: Input[str] | None = None
    """Class of the volume."""
    claim_storage_class: Input[str]
    """Class of the claim: the volume's, or an empty text, which keeps the cluster's default class away."""
    mount_options: Sequence[Input[str]] | None = None
    csi: CsiSourceArgs | None = None
    nfs: NfsSourceArgs | None = None
    host_path: HostPathSourceArgs | None = None


class DatasetVolume(pulumi.ComponentResource):
    """A PersistentVolume and its claim, bound to each other.

    Both are protected, and are kept when a stack is destroyed: the volume holds models.
    """

    def __init__(self, name: str, args: DatasetVolumeArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the volume and its claim."""
        super().__init__("tidegate:components:DatasetVolume", name, None, opts)
        kept = pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True)
        volume = k8s.core.v1.PersistentVolume(
            f"{name}-volume",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=args.name, labels=args.labels),
            spec=k8s.core.v1.PersistentVolumeSpecArgs(
                capacity={"storage": args.capacity},
                access_modes=args.access_modes,
                persistent_volume_reclaim_policy="Retain",
                storage_class_name=args.storage_class,
                mount_options=args.mount_options,
                # Reserved for this claim, so that no other claim of the cluster can take it.
                claim_ref=k8s.core.v1.ObjectReferenceArgs(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    namespace=args.namespace,
                    name=args.claim_name,
                ),
                csi=when(args.csi, _csi),
                nfs=when(args.nfs, lambda nfs: k8s.core.v1.NFSVolumeSourceArgs(server=nfs.server, path=nfs.path)),
                host_path=when(
                    args.host_path,
                    lambda folder: k8s.core.v1.HostPathVolumeSourceArgs(path=folder.path, type="Directory"),
                ),
            ),
            opts=kept,
        )
        k8s.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            metadata=metadata(args.claim_name, args.namespace, args.labels),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=args.access_modes,
                storage_class_name=args.claim_storage_class,
                volume_name=args.name,
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": _REQUEST}),
            ),
            opts=pulumi.ResourceOptions.merge(kept, pulumi.ResourceOptions(depends_on=[volume])),
        )
        self.register_outputs({})


def _csi(source: CsiSourceArgs) -> k8s.core.v1.CSIPersistentVolumeSourceArgs:
    return k8s.core.v1.CSIPersistentVolumeSourceArgs(
        driver=source.driver,
        volume_handle=source.volume_handle,
        volume_attributes=source.volume_attributes,
        fs_type=source.fs_type,
        node_publish_secret_ref=when(
            source.node_publish_secret,
            lambda secret: k8s.core.v1.SecretReferenceArgs(name=secret.name, namespace=secret.namespace),
        ),
    )
