"""How the node's programs are told what to do."""

from pathlib import Path

from lab.local_cluster import Network

NODE = "real-1"
NETWORK = Network(address="10.99.0.1", port=6443, services="10.96.0.0/16", pods="10.88.0.0/16")
DNS_ADDRESS = "10.96.0.10"
"""Stands in coredns.yaml too."""


def socket(room: Path) -> Path:
    """Return where containerd listens."""
    return room / "containerd.sock"


def containerd_settings(room: Path, packages: Path) -> str:
    """Return containerd's configuration; it says nothing that containerd 1.6, Debian 12's, does not know."""
    return f"""\
version = 2
root = "{room}/containerd/root"
state = "{room}/containerd/state"
oom_score = 0
[grpc]
  address = "{socket(room)}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:test"
  # A process that may not make itself less killable may not make a container so.
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{packages}/usr/lib/cni"
    conf_dir = "{room}/cni"
"""


def pod_network(room: Path) -> dict[str, object]:
    """Return how pods get their addresses: each has a line to the node, so that answers come back the way they went."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": NETWORK.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{room}/cni-addresses",
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}]}


def kubelet_settings(folder: Path, room: Path, cgroup: str) -> dict[str, object]:
    """Return the kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Nobody else is in its network, and the API server of a local cluster has no certificate to show.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{socket(room)}",
        "cgroupRoot": cgroup,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "resolvConf": "",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        # How soon a changed ConfigMap reaches a pod; a minute by default.
        "syncFrequency": "5s",
        "imageMinimumGCAge": "24h",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(room / "volume-plugins"),
    }


def kube_proxy_settings(kubeconfig: Path) -> dict[str, object]:
    """Return kube-proxy's configuration."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": NODE,
        "clusterCIDR": NETWORK.pods,
        "mode": "nftables",
        # As slow as in a big cluster: who goes without waiting until the news is everywhere loses calls.
        "nftables": {"minSyncPeriod": "3s"},
        # The limits of connection tracking are the whole machine's.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
