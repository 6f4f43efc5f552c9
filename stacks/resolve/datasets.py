"""Volumes of datasets, and the directories of model repositories in them."""

from components.args import ClaimArgs, DatasetVolumeArgs, ObjectStoreRepositoryArgs, VolumeRepositoryArgs

from ..definition.base import copy_as
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
    """Return the volumes to create, without datasets of kind claim."""
    return tuple(_volume(stack, item) for item in stack.platform.datasets if not isinstance(item, ClaimDataset))


def claims(stack: Stack) -> tuple[ClaimArgs, ...]:
    """Return the existing claims."""
    names = {item.claim_name for item in stack.platform.datasets if isinstance(item, ClaimDataset)}
    return tuple(ClaimArgs(name=name) for name in sorted(names))


def repository(stack: Stack, server: Server) -> VolumeRepositoryArgs | ObjectStoreRepositoryArgs:
    """Return the model repository of a server."""
    if isinstance(server.repository, ObjectStoreRepository):
        return ObjectStoreRepositoryArgs(url=server.repository.url)
    dataset = stack.dataset(server.repository.dataset)
    paths = [dataset.domino.folder if dataset.domino else None, server.repository.path]
    return VolumeRepositoryArgs.model_construct(
        claim=dataset.claim_name if isinstance(dataset, ClaimDataset) else dataset.made_as,
        sub_path="/".join(path for path in paths if path) or None,
        gcs_fuse=isinstance(dataset, CsiDataset) and dataset.read_by_pods,
    )


def _volume(stack: Stack, dataset: Volume) -> DatasetVolumeArgs:
    storage_class = dataset.storage_class or stack.data_plane.storage_classes.get(dataset.kind)
    return copy_as(
        DatasetVolumeArgs, dataset, name=dataset.made_as, source=_source(dataset), storage_class=storage_class
    )


def _source(dataset: Volume) -> CsiSource | NfsSource | HostPathSource:
    match dataset:
        case EfsDataset():
            # The EFS driver's volume handle: <file system>[:<sub path>[:<access point>]].
            point = f"::{dataset.access_point_id}" if dataset.access_point_id else ""
            handle = f"{dataset.file_system_id}{point}"
            return CsiSource.model_construct(kind="csi", driver=EFS_DRIVER, volume_handle=handle)
        case NfsDataset():
            return copy_as(NfsSource, dataset)
        case CsiDataset():
            return copy_as(CsiSource, dataset)
        case HostPathDataset():
            return copy_as(HostPathSource, dataset)
