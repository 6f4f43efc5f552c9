"""Replaces kubectl in tests that need no cluster."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rollout.changes.compare import identity
from stacks.command import CommandError

Object = dict[str, Any]
KINDS = {
    **{("v1", kind): f"{kind.lower()}s" for kind in ("ConfigMap", "Namespace", "PersistentVolumeClaim", "Service")},
    ("apps/v1", "StatefulSet"): "statefulsets",
    ("keda.sh/v1alpha1", "ScaledJob"): "scaledjobs.keda.sh",
}


@dataclass
class FakeCluster:
    """Has objects, finds them by kind, namespace and label, and records deletions."""

    objects: Sequence[Object] = ()
    context: str = "kind-lab"
    contexts: Sequence[str] = ("kind-lab", "east", "eks-old")
    uids: Mapping[str, str] = field(default_factory=dict)
    """Of the cluster of a context. A context without one does not respond."""
    deleted: list[str] = field(default_factory=list)

    def is_known(self) -> bool:
        return self.context in self.contexts

    def kinds(self) -> dict[tuple[str, str], str]:
        return KINDS

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        if name == "kube-system":
            if self.context not in self.uids:
                raise CommandError("no answer")
            return {"metadata": {"uid": self.uids[self.context]}}
        found = (item for item in self.objects if item["kind"].lower() == kind and item["metadata"]["name"] == name)
        return next((item for item in found if item["metadata"].get("namespace", "") == namespace), None)

    def find(self, kinds: Sequence[str], *arguments: str) -> list[Object]:
        options = dict(pairwise(arguments))
        wanted = {part for part in options.get("-l", "").split(",") if part}
        return [
            item
            for item in self.objects
            if f"{item['kind'].lower()}s" in {kind.partition(".")[0] for kind in kinds}
            and ("-A" in arguments or item["metadata"].get("namespace") in (None, options.get("-n")))
            and wanted <= {f"{key}={value}" for key, value in item["metadata"].get("labels", {}).items()}
        ]

    def like(self, objects: Sequence[Object]) -> list[Object]:
        wanted = {identity(item) for item in objects}
        return [item for item in self.objects if identity(item) in wanted]

    def run(self, *arguments: str, stdin: str = "", **_: Any) -> None:
        if arguments[0] == "delete" and stdin:
            self.deleted += [item["metadata"]["name"] for item in json.loads(stdin)["items"]]
