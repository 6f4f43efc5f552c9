"""Datasets: nothing changes or deletes the models that servers serve."""

from collections.abc import Iterator

from ..objects import Environment, at, mapping, mappings, text
from ..rule import Breach, guardrail

_SHARED = ("persistentVolumeClaim", "csi", "nfs")
"""Kinds of volumes that outlive a pod, or that several pods share."""


@guardrail(
    "No container can write to a dataset",
    "Set readOnly: true on the volume or on every mount. Publish models from a separate pipeline.",
    shared="advisory",
    local="advisory",
)
def datasets_are_mounted_read_only(environment: Environment) -> Iterator[Breach]:
    """A server that can write to a repository can change the models of other servers."""
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
    """With any other policy, Kubernetes deletes the models with the claim, and the claim with the namespace."""
    for volume in environment.of_kind("PersistentVolume"):
        policy = at(volume, "spec", "persistentVolumeReclaimPolicy")
        if policy != "Retain":
            yield Breach(volume, f"its reclaim policy is {policy or 'not set'}")


@guardrail(
    "No PersistentVolume is a directory or disk of a node",
    "Set kind efs, nfs or csi. For a trial on one machine, set local: true on the environment.",
    shared="mandatory",
)
def volumes_are_no_folders_of_nodes(environment: Environment) -> Iterator[Breach]:
    """The directory differs from node to node, and Tidegate does not control its contents."""
    for volume in environment.of_kind("PersistentVolume"):
        for kind in ("hostPath", "local"):
            if path := at(volume, "spec", kind):
                yield Breach(volume, f"it is {text(at(path, 'path')) or 'a directory'} on a node ({kind})")
