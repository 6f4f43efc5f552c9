"""What scales workloads, beside a local cluster and as its administrator: KEDA, and metrics-server.

They are the real programs, as processes on this machine. The API server passes calls of their APIs on to them: it must
have been started so (`aggregates`).
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

RESOLUTION_SECONDS = 10  # Between two readings of kubelets: metrics-server has no less.
_KEDA, _METRICS = "keda", "kube-system"  # Their namespaces.
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


@contextmanager
def metrics_server(cluster: LocalCluster, port: int) -> Iterator[None]:
    """Run metrics-server, which asks the kubelets of all nodes what pods use: over HTTP, at the ports that nodes tell.

    It is ready, and ends with the block. Raises ClusterError, and ToolError where it cannot be built.
    """
    authority = Authority()
    certificates = authority.write(cluster.folder / "pki" / "metrics-server", "metrics-server.kube-system.svc")
    command = [
        str(tools.path("metrics-server")),
        f"--kubeconfig={cluster.kubeconfig}",
        *_serving(cluster, certificates, port),
        "--kubelet-preferred-address-types=InternalIP",
        "--kubelet-use-node-status-port",
        "--deprecated-kubelet-completely-insecure",
        f"--metric-resolution={RESOLUTION_SECONDS}s",
        "--kubelet-request-timeout=5s",
    ]
    with _running(cluster, {"metrics-server": command}, {}) as children:
        _serve(cluster, "metrics.k8s.io", _METRICS, "metrics-server", port, authority.pem, children)
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
