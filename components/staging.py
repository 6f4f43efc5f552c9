"""Files near the GPU: the volume in which an on-demand pool stages models, and what Kubernetes counts for it.

The policy writes it and its server only reads it. A tier in memory or on the node's disk is counted with the policy,
which writes the files; a volume of its own, by its storage class.
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
    """Return what `make` makes of the tier of a pool, else what `otherwise` makes."""
    return of_kind(args.loading, OnDemand, lambda loading: either(loading.staging, make, otherwise), otherwise)


def settings(tier: Staging) -> dict[str, Any]:
    """Return what the policy is told of it, in the words of `tidegate_contracts.eviction.Staging`."""
    return {
        "folder": eviction_process.STAGING_ROOT,
        "sizeBytes": share_of(tier.size, *eviction.STAGED_SHARE),
    }


def volumes(tier: Staging) -> list[k8s.core.v1.VolumeArgs]:
    """Return the volume, which lives as long as the pod."""

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
    """Return the mount of the volume, where there is one: to write for the policy, to read for its server."""
    mounted = [pods.mount(STAGING, eviction_process.STAGING_ROOT, read_only=read_only)]
    return if_staged(args, lambda _: mounted, lambda: None)


def file_group(args: PoolArgs) -> int | None:
    """Return the group to which the node hands volumes over: a new volume belongs to root, a folder to everybody."""
    return if_staged(args, lambda tier: if_true(_is_volume(tier), lambda: pods.USER_ID), lambda: None)


def counted(loading: OnDemand, wanted: Resources, disk: str) -> k8s.core.v1.ResourceRequirementsArgs:
    """Return what the policy's container asks for, with what lies in a tier in memory or on the disk."""

    def with_tier(kind: str, amount: str) -> str:
        def beside(tier: Staging) -> str:
            return if_true(equals(tier.kind, kind), lambda: sum_of(tier.size, amount), lambda: amount)

        return either(loading.staging, beside, lambda: amount)

    return pods.container_resources(wanted, with_tier("disk", disk), memory=with_tier("memory", wanted.memory))


def _is_volume(tier: Staging) -> bool:
    return equals(tier.kind, "volume")


def _claim(tier: Staging) -> k8s.core.v1.EphemeralVolumeSourceArgs:
    why = "storageClass is needed: staging of kind volume makes a volume of it for each replica"
    return k8s.core.v1.EphemeralVolumeSourceArgs(
        volume_claim_template=k8s.core.v1.PersistentVolumeClaimTemplateArgs(
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                storage_class_name=needed(tier.storage_class, why),
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": tier.size}),
            )
        )
    )
