"""Dataset volumes, and where in them a server's model repository lies."""

from typing import assert_never

from components.dataset_volume import DatasetVolumeArgs
from components.environment import ClaimArgs
from components.server_args import ObjectStoreRepositoryArgs, VolumeRepositoryArgs

from ..definition.base import extended
from ..definition.datasets import (
    ClaimDataset,
    CsiDataset,
    CsiSource,
    EfsDataset,
    HostPathDataset,
    HostPathSource,
    NfsDataset,
    NfsSource,
    ObjectStoreRepository,
)
from ..definition.servers import Server
from ..stack import Stack

EFS_DRIVER = "efs.csi.aws.com"
Volume = EfsDataset | NfsDataset | CsiDataset | HostPathDataset


def dataset_volumes(stack: Stack) -> tuple[DatasetVolumeArgs, ...]:
    """Return the volumes to make; claims that exist already are used as they are."""
    return tuple(_volume(stack, item) for item in stack.platform.datasets if not isinstance(item, ClaimDataset))


def claims(stack: Stack) -> tuple[ClaimArgs, ...]:
    """Return the claims that exist already."""
    names = {item.claim_name for item in stack.platform.datasets if isinstance(item, ClaimDataset)}
    return tuple(ClaimArgs(name=name) for name in sorted(names))


def repository(stack: Stack, server: Server) -> VolumeRepositoryArgs | ObjectStoreRepositoryArgs:
    """Return where a server's models lie."""
    if isinstance(server.repository, ObjectStoreRepository):
        return ObjectStoreRepositoryArgs(url=server.repository.url)
    wanted = server.repository.dataset
    dataset = next(item for item in stack.platform.datasets if item.name == wanted)
    folders = [f"filecache/{dataset.domino.dataset_id}" if dataset.domino else None, server.repository.path]
    return VolumeRepositoryArgs.model_construct(
        claim=dataset.claim_name if isinstance(dataset, ClaimDataset) else dataset.name,
        sub_path="/".join(folder for folder in folders if folder) or None,
    )


def _volume(stack: Stack, dataset: Volume) -> DatasetVolumeArgs:
    classes = stack.data_plane.storage_classes
    default = {
        "efs": classes.efs,
        "nfs": classes.nfs,
        "csi": classes.csi,
        "hostPath": classes.host_path,
    }[dataset.kind]
    return extended(DatasetVolumeArgs, dataset, source=_source(dataset), storage_class=dataset.storage_class or default)


def _source(dataset: Volume) -> CsiSource | NfsSource | HostPathSource:
    match dataset:
        case EfsDataset():
            # The EFS driver's volume handle: <file system>[:<sub path>[:<access point>]].
            point = f"::{dataset.access_point_id}" if dataset.access_point_id else ""
            handle = f"{dataset.file_system_id}{point}"
            return CsiSource.model_construct(kind="csi", driver=EFS_DRIVER, volume_handle=handle)
        case NfsDataset():
            return extended(NfsSource, dataset)
        case CsiDataset():
            return extended(CsiSource, dataset)
        case HostPathDataset():
            return extended(HostPathSource, dataset)
        case _:
            assert_never(dataset)
