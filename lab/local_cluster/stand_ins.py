"""Replaces what others create in a real cluster: custom kinds, classes, drivers, secrets, digests of images."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate_contracts import dynamo

from rollout.needs import needs_of
from stacks.images_lock import FILE_NAME, PinnedImage, lock_text
from stacks.validate import read_definition

from . import crds
from .cluster import LocalCluster

_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "PriorityClass": {"value": 1000, "description": "Stands in for the one of a real cluster."},
    "CSIDriver": {"spec": {"attachRequired": False}},
    "StorageClass": {"provisioner": "kubernetes.io/host-path"},
    "ClusterIssuer": {"spec": {"selfSigned": {}}},
    "Secret": {},
    "ConfigMap": {},
    "CustomResourceDefinition": {"spec": dynamo.CRD_SPEC},
}


def stand_ins(objects: Sequence[dict[str, Any]], *, in_namespaces: bool = False) -> list[dict[str, Any]]:
    """Return stand-ins for the prerequisites of these objects in a cluster, or in its namespaces."""
    needs = (need for need in needs_of(objects) if need.hard and bool(need.namespace) == in_namespaces)
    return [{**need.stub, **_STAND_INS[need.kind]} for need in needs if need.kind in _STAND_INS]


def prepare(cluster: LocalCluster, objects: Sequence[dict[str, Any]]) -> None:
    """Create the prerequisites of these objects in a cluster, as its administrators would."""
    others = stand_ins(objects)
    crds.install(cluster, [*objects, *others])
    if others:
        cluster.apply(others)


def pinned(definition: Path, folder: Path) -> Path:
    """Copy a definition below a directory, with invented digests for its images. Return its path."""
    copy = folder / "definition" / definition.name
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(definition, copy)
    images = {image.reference for stack in read_definition(copy).stacks for image in stack.platform.images}
    pins = [PinnedImage(image=image, digest=f"sha256:{'0' * 64}") for image in sorted(images)]
    (copy.parent / FILE_NAME).write_text(lock_text(pins), "utf-8")
    return copy
