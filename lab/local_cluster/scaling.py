"""The real KEDA as processes next to a local cluster, as its administrator installs it.

The API server forwards calls of KEDA's API to it: start the cluster with `aggregates`.
"""

import base64
from pathlib import Path
from typing import Any

from lab import tools
from lab.local_plane.process import HOST, Process, free_ports

from .certificates import Authority
from .cluster import LocalCluster

_KEDA = "keda"  # Its namespace.
_READY_SECONDS = 120


def start_keda(cluster: LocalCluster) -> None:
    """Start KEDA's operator and its metrics adapter, with their kinds; they are ready, and end with the cluster.

    Raises ProcessError, and ToolError where they cannot be built.
    """
    operator, adapter = tools.path("keda-operator"), tools.path("keda-adapter")
    metrics, probes, inner, secure, counts = free_ports(5)
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
            f"--metrics-bind-address={HOST}:{metrics}",
            f"--health-probe-bind-address={HOST}:{probes}",
            f"--metrics-service-bind-address={HOST}:{inner}",
            f"--cert-dir={certificates}",
            "--zap-time-encoding=rfc3339",
        ],
        "keda-adapter": [
            str(adapter),
            f"--kubeconfig={cluster.kubeconfig}",
            *_serving(cluster, certificates, secure),
            f"--lister-kubeconfig={cluster.kubeconfig}",
            f"--client-ca-file={certificates}/ca.crt",
            f"--metrics-service-address={HOST}:{inner}",
            f"--port={counts}",  # its own counts, which it shows at every address of the machine
        ],
    }
    processes = [cluster.run(name, command, variables) for name, command in commands.items()]
    _serve(cluster, "external.metrics.k8s.io", "keda-metrics-apiserver", secure, authority.pem, processes[-1])


def _serving(cluster: LocalCluster, certificates: Path, port: int) -> list[str]:
    """Return the options by which a program serves an API, and asks the API server who may call it."""
    return [
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--authentication-kubeconfig={cluster.kubeconfig}",
        f"--authorization-kubeconfig={cluster.kubeconfig}",
    ]


def _serve(cluster: LocalCluster, group: str, name: str, port: int, authority: bytes, process: Process) -> None:
    """Have the API server pass the calls of an API group on to a process's port, and wait until it does."""
    head: dict[str, Any] = {"name": name, "namespace": _KEDA}
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

    process.wait_until(available, _READY_SECONDS)
