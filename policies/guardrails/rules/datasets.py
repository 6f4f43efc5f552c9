"""Datasets: what production serves does not change under it."""

from collections.abc import Iterator

from ..objects import Environment, at, mapping, mappings, text
from ..rule import Breach, guardrail

_SHARED = ("persistentVolumeClaim", "csi", "nfs")
"""Kinds of volumes that outlive a pod or are there for others too; what is made and deleted with it is neither."""


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
