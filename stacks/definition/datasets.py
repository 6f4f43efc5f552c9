"""Datasets: the volumes that hold model repositories. Every server mounts them read-only."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
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
)

AbsolutePath = Annotated[
    str,
    form(r"^/(\S(.*\S)?)?$", "an absolute path, such as /exports/models"),
    Without(r"(^|/)\.\.?(/|$)", "must be without . and .."),
]


class DominoDataset(Section):
    """Places everything below `filecache/<dataset id>`, where Domino keeps a dataset on its shared volume."""

    dataset_id: Annotated[str, form(r"^[A-Za-z0-9-]+$", "the id in the dataset's URL")]
    """Id of the Domino dataset."""

    @property
    def folder(self) -> str:
        """Its folder on the volume."""
        return f"filecache/{self.dataset_id}"


class DatasetBase(Renamable):
    """What datasets of every kind have."""

    domino: Annotated[DominoDataset | None, NOT_IN_VALUES] = None
    """Set where the volume is Domino's shared one and the models lie in a Domino dataset."""
    writers: Annotated[tuple[Text, ...], NOT_IN_VALUES] = ()
    """Who may write models into it outside of the servers: groups, as your identity provider names them."""


class VolumeBase(DatasetBase):
    """What datasets have that become a volume and its claim."""

    capacity: ByteQuantity = "100Gi"
    """Size that the volume and its claim state; shared file systems do not enforce it."""
    mount_options: tuple[Text, ...] = ()
    """Options of the mount, such as tls or nconnect=8."""
    access_mode: Literal["ReadOnlyMany", "ReadWriteMany"] = "ReadOnlyMany"
    """Access mode of the volume and its claim; servers mount it read-only either way."""
    storage_class: ObjectName | None = None
    """Class that volume and claim name; else the data plane's for this kind, else none."""


class EfsDataset(VolumeBase):
    """An Amazon EFS file system, by the EFS CSI driver."""

    kind: Literal["efs"]
    file_system_id: Annotated[str, form(r"^fs-[0-9a-f]+$", "fs-0123456789abcdef0")]
    """Id of the file system."""
    access_point_id: Annotated[str, form(r"^fsap-[0-9a-f]+$", "fsap-0123456789abcdef0")] | None = None
    """Access point, which fixes the root folder and the user; the file system's root without one."""
    access_mode: Literal["ReadWriteMany"] = "ReadWriteMany"
    """Access mode of the volume and its claim; the EFS driver knows no other. Servers mount it read-only."""


class NfsSource(Section):
    """An NFS export."""

    kind: Literal["nfs"]
    server: HostOrAddress
    """Host that exports it, by name or address."""
    path: AbsolutePath
    """Exported path."""


class NfsDataset(NfsSource, VolumeBase):
    """An NFS export."""


class CsiSource(Section):
    """A volume of a CSI driver."""

    kind: Literal["csi"]
    driver: ObjectName
    """Name of the driver, such as s3.csi.aws.com, gcsfuse.csi.storage.gke.io or blob.csi.azure.com."""
    volume_handle: Text
    """The driver's own name of the volume."""
    volume_attributes: dict[Text, str] = Field(default_factory=dict)
    """Attributes that the driver wants, such as bucketName. Never a secret."""
    fs_type: Text | None = None
    """File system, for drivers of block volumes."""
    node_publish_secret: ObjectName | None = None
    """Secret, in the environment's namespace, that the driver reads when it mounts."""


_BELOW = re.compile(r"-*(?:prefix|only-dir|subdirectory)[ =](.+)")
"""Options by which drivers mount a part of a bucket: Mountpoint for S3, GCS FUSE and blobfuse2."""


@dataclass(frozen=True)
class Folder:
    """A folder of a store, or a prefix of a bucket, that a server reads."""

    label: str  # The dataset's name, or the bucket's address.
    store: tuple[str, ...]
    path: str
    point: str = ""  # An access point of EFS, which may lie anywhere below the root.

    def overlaps(self, other: "Folder") -> bool:
        """Say whether one holds the other."""
        if self.store != other.store:
            return False
        if self.point != other.point:
            return "" in (self.point, other.point)  # another access point surely lies elsewhere
        one, two = (f"{folder.path.strip('/')}/".lstrip("/") for folder in (self, other))
        return one.startswith(two) or two.startswith(one)


def mounted_part(options: Iterable[str]) -> str:
    """Return the folder of a bucket that options of its mount choose; an empty text for all of it."""
    return next((found[1].strip("/") for option in options if (found := _BELOW.fullmatch(option))), "")


GCS_FUSE = "gcsfuse.csi.storage.gke.io"
_DISKS = {
    "ebs.csi.aws.com": (),
    "disk.csi.azure.com": ("ReadOnlyMany",),
    "pd.csi.storage.gke.io": ("ReadOnlyMany",),
}
"""Drivers of the clouds' disks, with the access modes that they have of those that several nodes can share."""


class CsiDataset(CsiSource, VolumeBase):
    """A volume of any CSI driver: S3 Mountpoint, GCS FUSE, Azure Blob, Ceph, …"""

    @property
    def read_by_pods(self) -> bool:
        """Whether the pods that mount it read the store themselves, by a sidecar, and not a driver on their node."""
        return self.driver == GCS_FUSE

    @property
    def identity_of_pods(self) -> Literal["aws", "gcp"] | None:
        """Cloud of the identity of the pods by which the driver reads; None if the driver has its own."""
        if self.driver == "s3.csi.aws.com" and self.volume_attributes.get("authenticationSource") == "pod":
            return "aws"
        return "gcp" if self.driver == GCS_FUSE else None

    @property
    def store(self) -> tuple[tuple[str, str], str] | None:
        """What it mounts, as another kind of dataset or the address of a bucket tells it, and a folder in that."""
        said = self.volume_attributes
        match self.driver:
            case "efs.csi.aws.com":  # <file system>[:<sub path>[:<access point>]]
                system, _, rest = self.volume_handle.partition(":")
                return ("efs", system), rest.partition(":")[0]
            case "s3.csi.aws.com" if "bucketName" in said:
                return ("s3", said["bucketName"]), ""
            case "gcsfuse.csi.storage.gke.io":
                name = self.volume_handle.partition(":")[0]  # what follows tells volumes of one bucket apart
                return ("gs", said.get("bucketName", name) if name == "_" else name), ""
            case "blob.csi.azure.com" if {"storageAccount", "containerName"} <= said.keys():
                return ("as", said["storageAccount"]), said["containerName"]
            case "nfs.csi.k8s.io" if {"server", "share"} <= said.keys():
                return ("nfs", said["server"]), f"{said['share']}/{said.get('subDir', '')}"
        return None

    @model_validator(mode="after")
    def _a_disk_is_no_shared_volume(self) -> Self:
        """A disk with a file system is attached to one node, or to several that only read it."""
        modes = _DISKS.get(self.driver, (self.access_mode,))
        if self.access_mode not in modes:
            instead = f"say accessMode {modes[0]}, or " if modes else ""
            shared = "use a file system or bucket that is shared"
            raise ValueError(f"a disk of {self.driver} cannot be mounted {self.access_mode}: {instead}{shared}")
        return self


class HostPathSource(Section):
    """A folder of the node, for local environments only."""

    kind: Literal["hostPath"]
    path: AbsolutePath
    """Absolute path on every node."""


class HostPathDataset(HostPathSource, VolumeBase):
    """A folder of the node, for local environments only."""


class ClaimDataset(DatasetBase):
    """A PersistentVolumeClaim that exists already in the environment's namespace; it is used and never changed."""

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
    """Folder of the repository below the dataset's root; the root itself without one."""


class ObjectStoreRepository(Section):
    """A model repository straight in object storage; Triton reads it itself, or the policy that stages it."""

    url: ObjectStoreUrl
    """`s3://bucket/prefix`, `gs://bucket/prefix` or `as://account/container/prefix`."""
    writers: tuple[Text, ...] = ()
    """Who may write models into it: groups, as your identity provider names them."""


def _repository_tag(value: Any) -> str:
    """Return which repository is meant: one with a key of object storage, mistyped perhaps, else one in a dataset."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        is_bucket = "dataset" not in keys and bool("writers" in keys or get_close_matches("url", keys))
    else:
        is_bucket = isinstance(value, ObjectStoreRepository)
    return "object-store" if is_bucket else "dataset"


ModelRepository = Annotated[
    Annotated[DatasetRepository, Tag("dataset")] | Annotated[ObjectStoreRepository, Tag("object-store")],
    Discriminator(_repository_tag),
]
"""Where the models of a server lie; the keys that are said tell which of the two it is."""
