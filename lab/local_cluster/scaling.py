"""The real KEDA next to a local cluster with `aggregates`, whose API server forwards calls of KEDA's API to it."""

import base64
from typing import Any

from lab import tools
from lab.local_plane.process import HOST, free_ports

from .certificates import Authority
from .cluster import LocalCluster

_KEDA = "keda"  # Its namespace.
_GROUP = "external.metrics.k8s.io"  # The API that the adapter serves.
_READY_SECONDS = 120


def start_keda(cluster: LocalCluster) -> None:
    """Start KEDA's operator, metrics adapter and kinds until the cluster ends. Raises ProcessError and ToolError."""
    operator, adapter = tools.path("keda-operator"), tools.path("keda-adapter")
    metrics, probes, inner, secure, counts = free_ports(5)
    for file in tools.crd_files("keda"):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
    authority = Authority()
    names = "keda-metrics-apiserver.keda.svc", "keda-operator.keda.svc"
    certificates = authority.write(cluster.folder / "pki" / "keda", *names)
    variables = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": _KEDA, "KEDA_CLUSTER_OBJECT_NAMESPACE": _KEDA}
    shared = [f"--kubeconfig={cluster.kubeconfig}", f"--cert-dir={certificates}"]
    operating = [
        f"--metrics-bind-address={HOST}:{metrics}",
        f"--health-probe-bind-address={HOST}:{probes}",
        f"--metrics-service-bind-address={HOST}:{inner}",
        "--zap-time-encoding=rfc3339",
    ]
    # The adapter serves an API, and the API server authorizes its callers.
    adapting = [
        f"--bind-address={HOST}",
        f"--secure-port={secure}",
        f"--tls-cert-file={certificates}/tls.crt",
        f"--tls-private-key-file={certificates}/tls.key",
        f"--client-ca-file={certificates}/ca.crt",
        *(f"--{purpose}-kubeconfig={cluster.kubeconfig}" for purpose in ("authentication", "authorization", "lister")),
        f"--metrics-service-address={HOST}:{inner}",
        f"--port={counts}",  # Its own metrics, which it serves at every address of the machine.
    ]
    name, namespace = f"v1beta1.{_GROUP}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _KEDA}}
    cluster.apply([namespace])
    cluster.run("keda-operator", [str(operator), *shared, *operating], variables)
    process = cluster.run("keda-adapter", [str(adapter), *shared, *adapting], variables)
    head: dict[str, Any] = {"name": "keda-metrics-apiserver", "namespace": _KEDA}
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": secure}]}
    api = {
        "group": _GROUP,
        "version": "v1beta1",
        "service": {**head, "port": secure},
        "caBundle": base64.b64encode(authority.pem).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    forwarding = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}}
    objects = [{"apiVersion": "v1", "kind": "Service", "metadata": head, "spec": service}, {**forwarding, "spec": api}]
    cluster.apply(objects)

    def available() -> bool:
        conditions = cluster.get("apiservice", name).get("status", {}).get("conditions", ())
        return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

    process.wait_until(available, _READY_SECONDS)
