"""The real KEDA as processes next to a local cluster, as its administrator installs it.

The API server forwards calls of KEDA's API to it: start the cluster with `aggregates`.
"""

import base64
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import tools

from . import processes
from .certificates import Authority
from .cluster import LocalCluster

_KEDA = "keda"  # Its namespace.
_LOOPBACK = "127.0.0.1"
_READY_SECONDS = 120
_Children = dict[str, "subprocess.Popen[bytes]"]


@contextmanager
def keda(cluster: LocalCluster, ports: Sequence[int]) -> Iterator[None]:
    """Run KEDA's operator and its metrics adapter, with their kinds; they are ready, and end with the block.

    `ports` are five free ones. Raises ClusterError, and ToolError where they cannot be built.
    """
    operator, adapter = tools.path("keda-operator"), tools.path("keda-adapter")
    metrics, probes, inner, secure, counts = ports
    for file in tools.crd_files("keda"):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
    authority = Authority()
    names = "keda-metrics-apiserver.keda.svc", "keda-operator.keda.svc"
    certificates = authority.write(cluster.folder / "pki" / "keda", *names)
    variables = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": _KEDA, "KEDA_CLUSTER_OBJECT_NAMESPACE": _KEDA}
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _KEDA}}])
    commands = {
        "keda-operator": [
            str(operator),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--metrics-bind-address={_LOOPBACK}:{metrics}",
            f"--health-probe-bind-address={_LOOPBACK}:{probes}",
            f"--metrics-service-bind-address={_LOOPBACK}:{inner}",
            f"--cert-dir={certificates}",
            "--zap-time-encoding=rfc3339",
        ],
        "keda-adapter": [
            str(adapter),
            f"--kubeconfig={cluster.kubeconfig}",
            *_serving(cluster, certificates, secure),
            f"--lister-kubeconfig={cluster.kubeconfig}",
            f"--client-ca-file={certificates}/ca.crt",
            f"--metrics-service-address={_LOOPBACK}:{inner}",
            f"--port={counts}",  # its own counts, which it shows at every address of the machine
        ],
    }
    with _running(cluster, commands, variables) as children:
        _serve(cluster, "external.metrics.k8s.io", _KEDA, "keda-metrics-apiserver", secure, authority.pem, children)
        yield


def _serving(cluster: LocalCluster, certificates: Path, port: int) -> list[str]:
    """Return the options by which a program serves an API, and asks the API server who may call it."""
    return [
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    ]


def _serve(
    cluster: LocalCluster, group: str, namespace: str, name: str, port: int, authority: bytes, children: _Children
) -> None:
    """Have the API server pass the calls of an API group on to a port of loopback, and wait until it does."""
    head: dict[str, Any] = {"name": name, "namespace": namespace}
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    spec = {
        "group": group,
        "version": "v1beta1",
        "service": {**head, "port": port},
        "caBundle": base64.b64encode(authority).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    api = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"v1beta1.{group}"}}
    cluster.apply([{"apiVersion": "v1", "kind": "Service", "metadata": head, "spec": service}, {**api, "spec": spec}])

    def available() -> bool:
        conditions = cluster.get("apiservice", f"v1beta1.{group}").get("status", {}).get("conditions", ())
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    processes.wait_for(f"the API {group}", available, children, cluster.folder, _READY_SECONDS)


@contextmanager
def _running(
    cluster: LocalCluster, commands: Mapping[str, Sequence[str]], variables: Mapping[str, str]
) -> Iterator[_Children]:
    children: _Children = {}
    try:
        for name, command in commands.items():
            children[name] = processes.spawn(name, command, cluster.folder, outlives=False, variables=variables)
        yield children
    finally:
        for child in children.values():
            child.kill()
            child.wait()
