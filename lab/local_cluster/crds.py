"""Installs the custom resource definitions of operators."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lab import tools

from .cluster import LocalCluster
from .control_plane import ClusterError

# The module of `tools.crd_files` with the kinds of an API group.
MODULES = {
    "monitoring.coreos.com": "prometheus-operator",
    "gateway.networking.k8s.io": "gateway-api",
    "cert-manager.io": "cert-manager",
    "keda.sh": "keda",
    "security.istio.io": "istio",
}
ESTABLISHED_SECONDS = 30
# Definitions are long and generated, so they are searched without parsing their YAML.
_HEAD = re.compile(
    r"^spec:\n  group: (?P<group>\S+)\n(?:.*\n)*?  names:\n(?:.*\n)*?    kind: (?P<kind>\S+)$", re.MULTILINE
)
_NAME = re.compile(r"^  name: (\S+)$", re.MULTILINE)


def install(cluster: LocalCluster, objects: Iterable[Mapping[str, Any]]) -> None:
    """Install the definitions of these objects' kinds, except Kubernetes' own, and await them. Raises ClusterError."""
    kinds = {(item["apiVersion"].partition("/")[0], item["kind"]) for item in objects}
    wanted = {(group, kind) for group, kind in kinds if group in MODULES}
    found = {key: text for key, text in _definitions(wanted) if key in wanted}
    if absent := wanted - found.keys():
        which = ", ".join(f"{kind} ({group})" for group, kind in sorted(absent))
        raise ClusterError(f"No pinned module has a definition of {which}. Add one to lab/tools/files.py.")
    if not found:
        return
    # Server-side, because they are too long for kubectl's annotation.
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input="\n---\n".join(found.values()))
    names = {match[1] for text in found.values() if (match := _NAME.search(text))}
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while waiting := _not_established(cluster, names):
        if time.monotonic() > deadline:
            raise ClusterError(f"After {ESTABLISHED_SECONDS} s the API server does not serve {', '.join(waiting)}.")
        time.sleep(0.1)


def _not_established(cluster: LocalCluster, names: Iterable[str]) -> set[str]:
    # Not `kubectl wait`: it fails on a definition with `conditions: null` until the first condition exists.
    established = {
        item["metadata"]["name"]
        for item in cluster.get("crd")
        for condition in item.get("status", {}).get("conditions") or ()
        if condition["type"] == "Established" and condition["status"] == "True"
    }
    return {*names} - established


def _definitions(wanted: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], str]]:
    modules = sorted({MODULES[group] for group, _ in wanted})
    for file in tools.crd_files(*modules) if modules else ():
        for text in re.split(r"^---.*$", file.read_text("utf-8"), flags=re.MULTILINE):
            if match := _HEAD.search(text):
                yield (match["group"], match["kind"]), text
