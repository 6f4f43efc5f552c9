"""Datasets: what production serves does not change under it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..objects import Environment, Pod, at, items, mapping, mappings, name_of, text
from ..rule import Breach, guardrail

_SHARED = ("persistentVolumeClaim", "csi", "nfs")
"""Kinds of volumes that outlive a pod or are there for others too; what is made and deleted with it is neither."""
_SCHEMES = ("s3://", "gs://", "as://")
_BELOW = re.compile(r"-*(?:prefix|only-dir|subdirectory)[ =](.+)")
"""Options by which drivers mount a part of a bucket: Mountpoint for S3, GCS FUSE and blobfuse2."""


@guardrail(
    "No container can write to a dataset",
    "Set readOnly: true on the volume or on every mount of it; let a pipeline of its own publish models.",
    shared="advisory",
    local="advisory",
)
def datasets_are_mounted_read_only(environment: Environment) -> Iterator[Breach]:
    """A model repository is published, never edited.

    A server that can write to it can change what all the others serve.
    """
    for pod in environment.pods:
        for volume in mappings(pod.spec.get("volumes")):
            kinds = [kind for kind in _SHARED if kind in volume]
            if not kinds or mapping(volume[kinds[0]]).get("readOnly") is True:
                continue
            for one in pod.containers:
                for mount in mappings(one.get("volumeMounts")):
                    if mount.get("name") == volume.get("name") and mount.get("readOnly") is not True:
                        what = f"container {one.get('name')} can write to volume {volume.get('name')}"
                        yield Breach(pod.maker, what)


@guardrail(
    "Every PersistentVolume has the reclaim policy Retain",
    "Set persistentVolumeReclaimPolicy: Retain.",
    shared="mandatory",
    local="advisory",
)
def volumes_are_retained(environment: Environment) -> Iterator[Breach]:
    """With any other policy, models are lost with the claim.

    The claim goes if someone deletes the namespace or destroys the stack.
    """
    for volume in environment.of_kind("PersistentVolume"):
        policy = at(volume, "spec", "persistentVolumeReclaimPolicy")
        if policy != "Retain":
            yield Breach(volume, f"its reclaim policy is {policy or 'not said'}")


@guardrail(
    "No PersistentVolume is a folder or disk of a node",
    "Give the dataset a store of its own: efs, nfs or csi; or mark the environment with local: true.",
    shared="mandatory",
)
def volumes_are_no_folders_of_nodes(environment: Environment) -> Iterator[Breach]:
    """Each node has its own folder of that path, and neither its writers nor its other files are known."""
    for volume in environment.of_kind("PersistentVolume"):
        for kind in ("hostPath", "local"):
            if path := at(volume, "spec", kind):
                yield Breach(volume, f"it is {text(at(path, 'path')) or 'a folder'} of a node ({kind})")


@dataclass(frozen=True)
class Folder:
    """A folder of a store, or a prefix of a bucket, that a pod mounts or reads."""

    label: str  # The claim's name or the bucket's address, as `written` names it.
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


@guardrail(
    "No dataset of production lies in what another environment may write",
    "Give production a dataset, folder or bucket of its own.",
)
def production_shares_nothing_that_others_may_write(environment: Environment) -> Iterator[Breach]:
    """Production must not serve files that people may change in dev.

    Data that both serve counts as writable by all unless `writers` names who may write it.
    """
    if environment.settings.kind != "production":
        return
    theirs = [
        (other, folder)
        for other in environment.others
        if other.settings.kind != "production"
        for folder in folders(other)
    ]
    for ours, by in folders(environment).items():
        for other, folder in theirs:
            written = folder.label in other.settings.written
            # Who writes production's own folder is said: others then only read it.
            ours_alone = ours.label in environment.settings.written and folder.path.strip("/") == ours.path.strip("/")
            if ours.overlaps(folder) and (written or not ours_alone):
                where = f"{folder.label} of {other.stack or other.namespace}"
                who = "which others may write" if written else "and writers does not name who may write there"
                yield Breach(by, f"{ours.label} shares its files with {where}, {who}")


def folders(environment: Environment) -> dict[Folder, Mapping[str, Any]]:
    """Return which folders of which stores the pods of an environment serve, each with the object that says so."""
    volumes = {name_of(item): item for item in environment.of_kind("PersistentVolume")}
    claims = {
        name_of(item): volumes.get(text(at(item, "spec", "volumeName")))
        for item in environment.of_kind("PersistentVolumeClaim")
    }
    found: dict[Folder, Mapping[str, Any]] = {}
    for pod in environment.pods:
        for url in _buckets(pod):
            scheme, _, rest = url.partition("://")
            bucket, _, path = rest.partition("/")
            found.setdefault(Folder(url, (scheme, bucket), path), pod.maker)
        for mounted in mappings(pod.spec.get("volumes")):
            claim = text(at(mounted, "persistentVolumeClaim", "claimName"))
            if volume := claims.get(claim):
                for path in _sub_paths(pod, mounted):
                    for folder in _folders_of(claim, mapping(volume.get("spec")), path):
                        found.setdefault(folder, volume)
    return found


def _buckets(pod: Pod) -> list[str]:
    arguments = (text(word) for one in pod.main_containers for word in items(one.get("args")))
    values = (word.partition("=")[2] for word in arguments if word.startswith("--model-repository="))
    return [value.rstrip("/") for value in values if value.startswith(_SCHEMES)]


def mounted_part(options: Iterable[str]) -> str:
    """Return the folder of a bucket that options of its mount choose; an empty text for all of it."""
    return next((found[1].strip("/") for option in options if (found := _BELOW.fullmatch(option))), "")


def _folders_of(claim: str, spec: Mapping[str, Any], path: str) -> Iterator[Folder]:
    """Yield the names under which a folder of a volume is known."""
    csi, nfs = mapping(spec.get("csi")), mapping(spec.get("nfs"))
    driver, handle = text(csi.get("driver")), text(csi.get("volumeHandle"))
    if driver == "efs.csi.aws.com":  # <file system>[:<sub path>[:<access point>]]
        system, _, rest = handle.partition(":")
        root, _, point = rest.partition(":")
        yield Folder(claim, ("csi", driver, system), f"{root.strip('/')}/{path}", point)
    elif csi:
        path = f"{mounted_part(map(text, items(spec.get('mountOptions'))))}/{path}"
        yield Folder(claim, ("csi", driver, handle), path)
        # The handle is often any unique name; what is mounted then stands in the attributes, as a bucket's name.
        if attributes := mapping(csi.get("volumeAttributes")):
            yield Folder(claim, ("csi", driver, *(f"{key}={attributes[key]}" for key in sorted(attributes))), path)
    if nfs:
        yield Folder(claim, ("nfs", text(nfs.get("server"))), f"{text(nfs.get('path')).strip('/')}/{path}")


def _sub_paths(pod: Pod, volume: Mapping[str, Any]) -> list[str]:
    mounts = (mount for one in pod.containers for mount in mappings(one.get("volumeMounts")))
    return list(
        dict.fromkeys(text(mount.get("subPath")) for mount in mounts if mount.get("name") == volume.get("name"))
    )
