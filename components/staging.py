"""Files near the GPU: the volume in which an on-demand pool stages models, and its resources.

The policy writes it and the server only reads it. A tier in memory or on the node's disk counts as memory or disk of
the policy's container, which writes the files. A separate volume counts at its storage class.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pulumi_kubernetes as k8s
from tidegate_contracts import eviction, eviction_process

from stacks.definition.base import Resources
from stacks.definition.pools import OnDemand, Staging

from . import pods
from .args import PoolArgs
from .naming import STAGING
from .values import either, equals, if_true, needed, of_kind, share_of, sum_of

Made = TypeVar("Made")


def if_staged(args: PoolArgs, make: Callable[[Staging], Made], otherwise: Callable[[], Made]) -> Made:
    """Return the result of `make` for the tier of a pool, or that of `otherwise` if the pool has none."""
    return of_kind(args.loading, OnDemand, lambda loading: either(loading.staging, make, otherwise), otherwise)


def settings(tier: Staging) -> dict[str, Any]:
    """Return the tier's settings for the policy, with the keys of `tidegate_contracts.eviction.Staging`."""
    return {
        "folder": eviction_process.STAGING_ROOT,
        "sizeBytes": share_of(tier.size, *eviction.STAGED_SHARE),
    }


def volumes(tier: Staging) -> list[k8s.core.v1.VolumeArgs]:
    """Return the volume, with the lifetime of the pod."""

    def of_node() -> k8s.core.v1.EmptyDirVolumeSourceArgs:
        medium = if_true(equals(tier.kind, "memory"), lambda: "Memory")
        return k8s.core.v1.EmptyDirVolumeSourceArgs(medium=medium, size_limit=tier.size)

    return [
        k8s.core.v1.VolumeArgs(
            name=STAGING,
            empty_dir=if_true(_is_volume(tier), lambda: None, of_node),
            ephemeral=if_true(_is_volume(tier), lambda: _claim(tier)),
        )
    ]


def mounts(args: PoolArgs, *, read_only: bool) -> list[k8s.core.v1.VolumeMountArgs] | None:
    """Return the mount of the volume, if there is one: writable for the policy, read-only for its server."""
    mounted = [pods.mount(STAGING, eviction_process.STAGING_ROOT, read_only=read_only)]
    return if_staged(args, lambda _: mounted, lambda: None)


def file_group(args: PoolArgs) -> int | None:
    """Return the group for a new volume, which belongs to root. A directory of the node is writable for all."""
    return if_staged(args, lambda tier: if_true(_is_volume(tier), lambda: pods.USER_ID), lambda: None)


def counted(loading: OnDemand, wanted: Resources, disk: str) -> k8s.core.v1.ResourceRequirementsArgs:
    """Return the resources of the policy's container, including a tier in memory or on the disk."""

    def with_tier(kind: str, amount: str) -> str:
        def added(tier: Staging) -> str:
            return if_true(equals(tier.kind, kind), lambda: sum_of(tier.size, amount), lambda: amount)

        return either(loading.staging, added, lambda: amount)

    return pods.container_resources(wanted, with_tier("disk", disk), memory=with_tier("memory", wanted.memory))


def _is_volume(tier: Staging) -> bool:
    return equals(tier.kind, "volume")


def _claim(tier: Staging) -> k8s.core.v1.EphemeralVolumeSourceArgs:
    why = "storageClass is required: staging of kind volume creates a volume of this class for each replica"
    return k8s.core.v1.EphemeralVolumeSourceArgs(
        volume_claim_template=k8s.core.v1.PersistentVolumeClaimTemplateArgs(
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                storage_class_name=needed(tier.storage_class, why),
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": tier.size}),
            )
        )
    )
