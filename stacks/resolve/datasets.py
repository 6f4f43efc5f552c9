"""Dataset volumes, and where in them a server's model repository lies."""

from typing import assert_never

from components import (
    ClaimArgs,
    CsiSourceArgs,
    DatasetVolumeArgs,
    HostPathSourceArgs,
    NfsSourceArgs,
    ObjectStoreRepositoryArgs,
    VolumeRepositoryArgs,
)

from ..definition.datasets import (
    ClaimDataset,
    CsiDataset,
    EfsDataset,
    HostPathDataset,
    NfsDataset,
    ObjectStoreRepository,
)
from ..definition.servers import Server
from ..stack import Stack

EFS_DRIVER = "efs.csi.aws.com"
Volume = EfsDataset | NfsDataset | CsiDataset | HostPathDataset


def dataset_volumes(stack: Stack) -> list[DatasetVolumeArgs]:
    """Return the volumes to make; claims that exist already are used as they are."""
    return [_volume(stack, item) for item in stack.platform.datasets if not isinstance(item, ClaimDataset)]


def claims(stack: Stack) -> list[ClaimArgs]:
    """Return the claims that exist already."""
    names = {item.claim_name for item in stack.platform.datasets if isinstance(item, ClaimDataset)}
    return [ClaimArgs(name=name) for name in sorted(names)]


def repository(stack: Stack, server: Server) -> VolumeRepositoryArgs | ObjectStoreRepositoryArgs:
    """Return where a server's models lie."""
    if isinstance(server.repository, ObjectStoreRepository):
        return ObjectStoreRepositoryArgs(url=server.repository.url)
    wanted = server.repository.dataset
    dataset = next(item for item in stack.platform.datasets if item.name == wanted)
    folders = [f"filecache/{dataset.domino.dataset_id}" if dataset.domino else None, server.repository.path]
    return VolumeRepositoryArgs(
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
    return DatasetVolumeArgs(
        name=dataset.name,
        source=_source(dataset),
        capacity=dataset.capacity,
        access_mode=dataset.access_mode,
        storage_class=dataset.storage_class or default,
        mount_options=list(dataset.mount_options),
    )


def _source(dataset: Volume) -> CsiSourceArgs | NfsSourceArgs | HostPathSourceArgs:
    match dataset:
        case EfsDataset():
            # The EFS driver's volume handle: <file system>[:<sub path>[:<access point>]].
            point = f"::{dataset.access_point_id}" if dataset.access_point_id else ""
            return CsiSourceArgs(driver=EFS_DRIVER, volume_handle=f"{dataset.file_system_id}{point}")
        case NfsDataset():
            return NfsSourceArgs(server=dataset.server, path=dataset.path)
        case CsiDataset():
            return CsiSourceArgs(
                driver=dataset.driver,
                volume_handle=dataset.volume_handle,
                volume_attributes=dict(dataset.volume_attributes),
                fs_type=dataset.fs_type,
                node_publish_secret=dataset.node_publish_secret,
            )
        case HostPathDataset():
            return HostPathSourceArgs(path=dataset.path)
        case _:
            assert_never(dataset)
