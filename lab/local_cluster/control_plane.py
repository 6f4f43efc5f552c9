"""The programs of a control plane: their command lines and their identities.

Only the API server listens, over TLS and by default on loopback. The etcd server has a Unix socket in the cluster's
directory, which only its owner may enter. The API server signs its own serving certificate. The certificate's key also
signs the tokens of service accounts. People and programs authenticate with tokens.
"""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import tools
from lab.local_plane.process import ProcessError

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
ADMIN = "admin"
SERVICES, PODS = "10.96.0.0/16", "10.88.0.0/16"  # The addresses of Services, and of pods that a real kubelet runs.
# The programs with a separate token, and their users.
_IDENTITIES = {
    ADMIN: ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    # kwok replaces the kubelets of all simulated nodes, and the controller of node addresses.
    "kwok": ("kwok", "system:masters"),
}
_CERTIFICATE, KEY = "pki/apiserver.crt", "pki/apiserver.key"
FRONT_PROXY = "pki/front-proxy"  # The directory of the API server's client certificate for aggregated APIs.
_FRONT_PROXY = (
    f"--requestheader-client-ca-file={FRONT_PROXY}/ca.crt",
    "--requestheader-allowed-names=front-proxy",
    f"--proxy-client-cert-file={FRONT_PROXY}/tls.crt",
    f"--proxy-client-key-file={FRONT_PROXY}/tls.key",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
)


class ClusterError(ProcessError):
    """A local cluster cannot start, or refused something. The text states what, why and what to do."""


@dataclass(frozen=True)
class Network:
    """The address of the API server.

    The defaults are for simulated nodes. If a real kubelet joins in a network namespace, its pods must reach `address`.
    The API server then listens on every address of that namespace, and `kubernetes.default` leads to it.
    """

    address: str = "127.0.0.1"
    port: int = 0  # Any free port.

    @property
    def loopback(self) -> bool:
        return self.address == "127.0.0.1"


@dataclass
class ControlPlane:
    """A control plane in a directory: the command lines of its programs, and their credentials."""

    folder: Path
    context: str
    network: Network
    port: int
    aggregates: bool = False  # Whether it forwards calls to APIs of other programs, such as metrics.

    def write_tokens(self) -> None:
        """Write a new token for each identity, and the list of tokens for the API server."""
        lines = []
        for name, (user, group) in _IDENTITIES.items():
            token = secrets.token_urlsafe(32)
            private(self.folder / "tokens" / name, token)
            lines.append(f'{token},{user},{user},"{group}"\n')
        private(self.folder / "tokens.csv", "".join(lines))

    def write_kubeconfigs(self) -> None:
        """Write the kubeconfigs. Requires the API server's certificate."""
        for name in _IDENTITIES:
            private(self.kubeconfig_of(name), self._kubeconfig(name))

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """Return a kubeconfig of another identity, with that identity's rights. `system:node:<node>` in the group
        `system:nodes` is a kubelet, `system:kube-proxy` is kube-proxy."""
        key = hashlib.sha256("\n".join([name, *groups]).encode()).hexdigest()[:16]
        path = self.folder / "kubeconfigs" / "users" / key
        # The administrator impersonates the identity.
        private(path, self._kubeconfig(ADMIN, {"as": name, **({"as-groups": [*groups]} if groups else {})}))
        return path

    @property
    def kubeconfig(self) -> Path:
        return self.kubeconfig_of(ADMIN)

    def kubeconfig_of(self, name: str) -> Path:
        return self.folder / "kubeconfig" if name == ADMIN else self.folder / "kubeconfigs" / name

    @property
    def server(self) -> str:
        return f"https://{self.network.address}:{self.port}"

    def command(self, program: str) -> list[str]:
        """Return the command line of a program. All run in the cluster's directory."""
        network = self.network
        options = {
            # Relative addresses, because the whole path could exceed a socket's limit.
            "etcd": [
                "--data-dir=etcd",
                "--listen-client-urls=unix://etcd.sock",
                "--advertise-client-urls=unix://etcd:0",
                "--listen-peer-urls=unix://peer:0",
                "--initial-advertise-peer-urls=unix://peer:0",
                "--initial-cluster=default=unix://peer:0",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            "kube-apiserver": [
                "--etcd-servers=unix://etcd.sock",
                f"--bind-address={'127.0.0.1' if network.loopback else '0.0.0.0'}",
                f"--secure-port={self.port}",
                f"--advertise-address={network.address}",
                # An Endpoints object may not have a loopback address, and no simulated pod uses it.
                f"--endpoint-reconciler-type={'none' if network.loopback else 'lease'}",
                "--cert-dir=pki",
                "--token-auth-file=tokens.csv",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged",
                f"--service-cluster-ip-range={SERVICES}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-signing-key-file={KEY}",
                f"--service-account-key-file={KEY}",
                "--kubelet-preferred-address-types=InternalIP",
                "--profiling=false",
                *(_FRONT_PROXY if self.aggregates else []),
            ],
            "kube-controller-manager": [
                *self._client("kube-controller-manager"),
                f"--root-ca-file={_CERTIFICATE}",
                f"--service-account-private-key-file={KEY}",
                "--use-service-account-credentials",
                *([] if network.loopback else ["--allocate-node-cidrs", f"--cluster-cidr={PODS}"]),
                f"--service-cluster-ip-range={SERVICES}",
                "--horizontal-pod-autoscaler-sync-period=3s",
                "--enable-hostpath-provisioner",  # For classes that name it: volumes for simulated pods.
            ],
            "kube-scheduler": self._client("kube-scheduler"),
            "kwok": [
                f"--kubeconfig={self.kubeconfig_of('kwok')}",
                "--config=stages.yaml",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--cidr=10.77.0.1/16",
                "--node-ip=10.99.0.9",
                "--node-lease-duration-seconds=40",
            ],
        }
        return [str(tools.path(program)), *options[program]]

    def _client(self, program: str) -> list[str]:
        # Higher limits than the default, because no other clients use this API server.
        brisk = ["--kube-api-qps=300", "--kube-api-burst=600"]
        return [f"--kubeconfig={self.kubeconfig_of(program)}", "--secure-port=0", "--leader-elect=false", *brisk]

    def _kubeconfig(self, name: str, acting: Mapping[str, Any] | None = None) -> str:
        authority = base64.b64encode((self.folder / _CERTIFICATE).read_bytes()).decode()
        token = (self.folder / "tokens" / name).read_text("utf-8")
        whole = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": self.context, "cluster": {"server": self.server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": self.context, "user": {"token": token, **(acting or {})}}],
            "contexts": [{"name": self.context, "context": {"cluster": self.context, "user": self.context}}],
            "current-context": self.context,
        }
        return json.dumps(whole, indent=1)


def _address_stage(name: str, kind: Mapping[str, str], conditions: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a stage that publishes an address, as the controller of a cloud or of an Ingress does."""
    field = ".status.loadBalancer.ingress"
    patch = {"subresource": "status", "root": "status", "template": "loadBalancer: {ingress: [{ip: 192.0.2.1}]}"}
    spec = {
        "resourceRef": kind,
        "selector": {"matchExpressions": [{"key": field, "operator": "DoesNotExist"}, *conditions]},
        "next": {"patches": [patch]},
    }
    return json.dumps(
        {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}
    )


def write_stages(folder: Path) -> None:
    """Write kwok's stages to one file: the life of simulated nodes and pods, and the published addresses. Pulumi waits
    for the address of an Ingress and of a load balancer."""
    balanced = {"key": ".spec.type", "operator": "In", "values": ["LoadBalancer"]}
    texts = [
        *(file.read_text("utf-8") for file in tools.module_files("kwok-stages")),
        _address_stage("ingress-address", {"apiGroup": "networking.k8s.io/v1", "kind": "Ingress"}),
        _address_stage("load-balancer-address", {"apiGroup": "v1", "kind": "Service"}, [balanced]),
    ]
    (folder / "stages.yaml").write_text("\n---\n".join(texts), "utf-8")


def private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
