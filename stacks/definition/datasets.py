"""Datasets: the volumes with model repositories. Every server mounts them read-only."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from .base import (
    NOT_IN_VALUES,
    ByteQuantity,
    HostOrAddress,
    ObjectName,
    RelativePath,
    Renamable,
    Section,
    Text,
    Without,
    form,
    nearest,
)

AbsolutePath = Annotated[
    str,
    form(r"^/(\S(.*\S)?)?$", "an absolute path, such as /exports/models", "absolute path"),
    Without(r"(^|/)\.\.?(/|$)", "cannot contain . or .."),
]


class DominoDataset(Section):
    """A Domino dataset. Domino keeps it in `filecache/<dataset id>` of its shared volume."""

    dataset_id: Annotated[str, form(r"^[A-Za-z0-9-]+$", "the id in the dataset's URL")]
    """Id of the dataset."""

    @property
    def folder(self) -> str:
        return f"filecache/{self.dataset_id}"


class DatasetBase(Renamable):
    """Keys of datasets of every kind."""

    domino: Annotated[DominoDataset | None, NOT_IN_VALUES] = None
    """Domino dataset with the models, if the volume is Domino's shared volume."""
    writers: Annotated[tuple[Text, ...], NOT_IN_VALUES] = ()
    """Groups of your identity provider that may write models."""


class VolumeBase(DatasetBase):
    """Keys of datasets for which Tidegate creates a volume and a claim."""

    capacity: ByteQuantity = "100Gi"
    """Nominal size, which shared file systems do not enforce."""
    mount_options: tuple[Text, ...] = ()
    """Mount options, such as nconnect=8."""
    access_mode: Literal["ReadOnlyMany", "ReadWriteMany"] = "ReadOnlyMany"
    """Access mode. Servers always mount it read-only."""
    storage_class: ObjectName | None = None
    """Storage class. The default is the data plane's."""


class EfsDataset(VolumeBase):
    """An Amazon EFS file system, through the EFS CSI driver."""

    kind: Literal["efs"]
    file_system_id: Annotated[str, form(r"^fs-[0-9a-f]+$", "fs-0123456789abcdef0")]
    """Id of the file system."""
    access_point_id: Annotated[str, form(r"^fsap-[0-9a-f]+$", "fsap-0123456789abcdef0")] | None = None
    """Access point, which sets root directory and user. By default none. Set another root in each environment."""
    access_mode: Literal["ReadWriteMany"] = "ReadWriteMany"
    """Access mode, the only one of the driver."""


class NfsSource(Section):
    """An NFS export."""

    kind: Literal["nfs"]
    server: HostOrAddress
    """Host name or address."""
    path: AbsolutePath
    """Exported path."""


class NfsDataset(NfsSource, VolumeBase):
    """An NFS export."""


class CsiSource(Section):
    """A volume of a CSI driver."""

    kind: Literal["csi"]
    driver: ObjectName
    """Driver, such as s3.csi.aws.com, gcsfuse.csi.storage.gke.io or blob.csi.azure.com."""
    volume_handle: Text
    """The driver's name of the volume."""
    volume_attributes: dict[Text, str] = Field(default_factory=dict)
    """Attributes for the driver, such as bucketName. Never a secret."""
    fs_type: Text | None = None
    """File system type of block volumes."""
    node_publish_secret: ObjectName | None = None
    """Secret that the driver reads for the mount."""


_BELOW = re.compile(r"-*(?:prefix|only-dir|subdirectory)[ =](.+)")
"""Mount options for a part of a bucket: Mountpoint for S3, GCS FUSE and blobfuse2."""


@dataclass(frozen=True)
class Folder:
    """A directory of a store, or a prefix of a bucket, that a server reads."""

    label: str  # The dataset's name, or the bucket's address.
    store: tuple[str, ...]
    path: str
    point: str = ""  # An access point of EFS, which can be anywhere below the root.

    @property
    def place(self) -> tuple[tuple[str, ...], str, str]:
        """Return a key that is equal for all names of one directory."""
        return self.store, self.path.strip("/"), self.point

    def overlaps(self, other: "Folder") -> bool:
        if self.store != other.store:
            return False
        if self.point != other.point:
            return "" in (self.point, other.point)  # Two access points are in different places.
        one, two = (f"{folder.path.strip('/')}/".lstrip("/") for folder in (self, other))
        return one.startswith(two) or two.startswith(one)


def mounted_part(options: Iterable[str]) -> str:
    """Return the directory of a bucket that mount options select, or an empty string for the whole bucket."""
    return next((found[1].strip("/") for option in options if (found := _BELOW.fullmatch(option))), "")


GCS_FUSE = "gcsfuse.csi.storage.gke.io"
_DISKS = {
    "ebs.csi.aws.com": (),
    "disk.csi.azure.com": ("ReadOnlyMany",),
    "pd.csi.storage.gke.io": ("ReadOnlyMany",),
}
"""Drivers of cloud disks, with their access modes that several nodes can share."""


class CsiDataset(CsiSource, VolumeBase):
    """A volume of any CSI driver: S3 Mountpoint, GCS FUSE, Azure Blob, Ceph, …"""

    @property
    def read_by_pods(self) -> bool:
        """Return whether a sidecar in the pods reads the store, instead of a driver on the node."""
        return self.driver == GCS_FUSE

    @property
    def identity_of_pods(self) -> Literal["aws", "gcp"] | None:
        """Return the cloud of the pods' identity if the driver uses it, or None if the driver has another identity."""
        if self.driver == "s3.csi.aws.com" and self.volume_attributes.get("authenticationSource") == "pod":
            return "aws"
        return "gcp" if self.driver == GCS_FUSE else None

    @property
    def store(self) -> tuple[tuple[str, str], str] | None:
        """Return the store of the volume, as other datasets or bucket addresses name it, and a directory in it."""
        attributes = self.volume_attributes
        match self.driver:
            case "efs.csi.aws.com":  # <file system>[:<sub path>[:<access point>]]
                system, _, rest = self.volume_handle.partition(":")
                return ("efs", system), rest.partition(":")[0]
            case "s3.csi.aws.com" if "bucketName" in attributes:
                return ("s3", attributes["bucketName"]), ""
            case "gcsfuse.csi.storage.gke.io":
                name = self.volume_handle.partition(":")[0]  # The rest distinguishes volumes of one bucket.
                return ("gs", attributes.get("bucketName", name) if name == "_" else name), ""
            case "blob.csi.azure.com" if {"storageAccount", "containerName"} <= attributes.keys():
                return ("as", attributes["storageAccount"]), attributes["containerName"]
            case "file.csi.azure.com" if {"storageAccount", "shareName"} <= attributes.keys():
                path = f"{attributes['shareName']}/{attributes.get('folderName', '')}"
                return ("azurefile", attributes["storageAccount"]), path
            case "nfs.csi.k8s.io" if {"server", "share"} <= attributes.keys():
                return ("nfs", attributes["server"]), f"{attributes['share']}/{attributes.get('subDir', '')}"
            case "smb.csi.k8s.io" if "source" in attributes:
                return ("smb", attributes["source"]), attributes.get("subDir", "")
            case "cephfs.csi.ceph.com" if {"clusterID", "fsName", "rootPath"} <= attributes.keys():
                return ("cephfs", f"{attributes['clusterID']}/{attributes['fsName']}"), attributes["rootPath"]
        return None

    @model_validator(mode="after")
    def _a_disk_is_no_shared_volume(self) -> Self:
        """Refuse a disk for several nodes, except if they only read it and the driver supports that."""
        modes = _DISKS.get(self.driver, (self.access_mode,))
        if self.access_mode not in modes:
            instead = f"set accessMode {modes[0]}, or " if modes else ""
            shared = "set a driver of a shared file system or bucket"
            raise ValueError(f"nodes cannot mount a disk of {self.driver} {self.access_mode}: {instead}{shared}")
        return self


class HostPathSource(Section):
    """A directory of the node, for local environments only."""

    kind: Literal["hostPath"]
    path: AbsolutePath
    """Directory on every node."""


class HostPathDataset(HostPathSource, VolumeBase):
    """A directory of the node, for local environments only."""


class ClaimDataset(DatasetBase):
    """An existing PersistentVolumeClaim, which Tidegate never changes."""

    kind: Literal["claim"]
    claim_name: ObjectName
    """Name of the claim."""


Dataset = Annotated[EfsDataset | NfsDataset | CsiDataset | HostPathDataset | ClaimDataset, Field(discriminator="kind")]


_STORES = "s3://bucket/prefix, gs://bucket/prefix or as://account/container/prefix"
ObjectStoreUrl = Annotated[str, form(r"^(s3|gs|as)://[A-Za-z0-9.:/_-]+$", _STORES)]


class DatasetRepository(Section):
    """A model repository in a dataset."""

    dataset: Text
    """Name of the dataset."""
    path: RelativePath | None = None
    """Directory in the dataset. The default is its root."""


class ObjectStoreRepository(Section):
    """A model repository in object storage. Triton reads it, or the policy that stages files."""

    url: ObjectStoreUrl
    """Address."""
    writers: tuple[Text, ...] = ()
    """Groups of your identity provider that may write models."""


def _repository_tag(value: Any) -> str:
    """Return the kind of a repository: object storage if it has such a key (perhaps with a typo), or else a dataset."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        is_bucket = "dataset" not in keys and ("writers" in keys or nearest("url", keys) != "")
    else:
        is_bucket = isinstance(value, ObjectStoreRepository)
    return "object-store" if is_bucket else "dataset"


ModelRepository = Annotated[
    Annotated[DatasetRepository, Tag("dataset")] | Annotated[ObjectStoreRepository, Tag("object-store")],
    Discriminator(_repository_tag),
]
"""The repository of a server. Its keys determine which of the two it is."""
