"""Dataset volumes, and where in them a server's model repository lies."""

from components import (
    CsiSourceArgs,
    DatasetVolumeArgs,
    HostPathSourceArgs,
    NfsSourceArgs,
    RepositoryVolumeArgs,
    SecretReferenceArgs,
)

from ..definition.datasets import (
    ClaimDataset,
    CsiDataset,
    DatasetRepository,
    EfsDataset,
    HostPathDataset,
    NfsDataset,
)
from ..definition.servers import Server
from ..stack import Stack
from . import names

EFS_DRIVER = "efs.csi.aws.com"
Volume = EfsDataset | NfsDataset | CsiDataset | HostPathDataset


def dataset_volumes(stack: Stack) -> list[DatasetVolumeArgs]:
    """Return the volumes to make; claims that exist already are used as they are."""
    return [_volume(stack, item) for item in stack.platform.datasets if not isinstance(item, ClaimDataset)]


def repository_volume(stack: Stack, server: Server) -> RepositoryVolumeArgs | None:
    """Return where a server's repository is mounted from; None when Triton reads object storage itself."""
    if not isinstance(server.repository, DatasetRepository):
        return None
    wanted = server.repository.dataset
    dataset = next(item for item in stack.platform.datasets if item.name == wanted)
    folders = [f"filecache/{dataset.domino.dataset_id}" if dataset.domino else None, server.repository.path]
    return RepositoryVolumeArgs(
        claim_name=dataset.claim_name if isinstance(dataset, ClaimDataset) else dataset.name,
        sub_path="/".join(folder for folder in folders if folder) or None,
    )


def _volume(stack: Stack, dataset: Volume) -> DatasetVolumeArgs:
    csi, nfs, host_path = _source(stack, dataset)
    classes = stack.data_plane.storage_classes
    default = {
        "efs": classes.efs,
        "nfs": classes.nfs,
        "csi": classes.csi,
        "hostPath": classes.host_path,
    }[dataset.kind]
    storage_class = dataset.storage_class or default
    return DatasetVolumeArgs(
        name=f"{stack.namespace}-{dataset.name}",
        claim_name=dataset.name,
        namespace=stack.namespace,
        labels=names.labels(stack, "dataset"),
        capacity=dataset.capacity,
        access_modes=[dataset.access_mode],
        storage_class=storage_class,
        claim_storage_class=storage_class or "",
        mount_options=list(dataset.mount_options) or None,
        csi=csi,
        nfs=nfs,
        host_path=host_path,
    )


def _source(
    stack: Stack, dataset: Volume
) -> tuple[CsiSourceArgs | None, NfsSourceArgs | None, HostPathSourceArgs | None]:
    match dataset:
        case EfsDataset():
            # The EFS driver's volume handle: <file system>[:<sub path>[:<access point>]].
            point = f"::{dataset.access_point_id}" if dataset.access_point_id else ""
            return CsiSourceArgs(driver=EFS_DRIVER, volume_handle=f"{dataset.file_system_id}{point}"), None, None
        case NfsDataset():
            return None, NfsSourceArgs(server=dataset.server, path=dataset.path), None
        case CsiDataset():
            secret = dataset.node_publish_secret
            reference = SecretReferenceArgs(name=secret, namespace=stack.namespace) if secret else None
            source = CsiSourceArgs(
                driver=dataset.driver,
                volume_handle=dataset.volume_handle,
                volume_attributes=dataset.volume_attributes or None,
                fs_type=dataset.fs_type,
                node_publish_secret=reference,
            )
            return source, None, None
        case HostPathDataset():
            return None, None, HostPathSourceArgs(path=dataset.path)
