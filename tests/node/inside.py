"""The first process of a node. It runs in separate namespaces (see machine.py), and starts all other programs.

These are a control plane, containerd, kubelet, kube-proxy and the cluster's DNS. They have a separate network, and
write to directories that the machine does not see. `python -m tests.node.inside FOLDER PACKAGES ARCHIVE…` prints a line
when all is up, and runs until its standard input ends.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from lab import tools
from lab.local_cluster import LocalCluster, Network
from lab.local_cluster.control_plane import PODS
from lab.local_plane.process import Process, running
from lab.tools.debian import Unpacked

HERE = Path(__file__).resolve().parent
NODE = "real-1"
NETWORK = Network(address="10.99.0.1", port=6443)
DNS_ADDRESS = "10.96.0.10"  # Also in coredns.yaml.
HIDDEN = ("/run", "/var/lib", "/var/log", "/srv")
"""Fixed directories of containerd, kubelet and CNI plugins, and the dataset of the definition."""
START_SECONDS = 180


def main(folder: Path, packages: Path, *archives: Path) -> None:
    """Start the node, print its address, and reap its processes until standard input ends."""
    assert os.getpid() == 1, "run this in a new PID namespace"
    node = Inside(folder, Unpacked(packages))
    node.up(archives)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 1)[0]:
        # The first process inherits orphans, such as the shims of ended containers.
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os._exit(0)  # The kernel ends all others with the first process.


class Inside:
    def __init__(self, folder: Path, debian: Unpacked) -> None:
        self.folder = folder
        self.debian = debian
        self.environment = debian.environment()
        self.room = folder / "room"
        self.stack = ExitStack()

    def up(self, archives: Sequence[Path]) -> None:
        self._private_folders()
        self._network()
        containerd = self._containerd()
        cluster = self.stack.enter_context(LocalCluster.start(self.folder / "cluster", name="node", network=NETWORK))
        for file in ("coredns.yaml", "volumes.yaml"):
            cluster.kubectl("apply", "--server-side", "-f", str(HERE / file))
        self._images(containerd, archives)
        self._kubelet(cluster)
        self._kube_proxy(cluster)
        cluster.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s", timeout=200)
        cluster.kubectl("wait", "--for=jsonpath={.metadata.name}=default", "serviceaccount/default", "--timeout=50s")

    def _private_folders(self) -> None:
        """Mount empty directories in memory where programs write outside `room`, only in this mount namespace."""
        self.room.mkdir()
        self._call("mount", "-t", "tmpfs", "tmpfs", str(self.room))
        needed = [self.folder, tools.cache_root(), Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), Path.home()]
        for place in HIDDEN:
            before = self.room / "hidden" / place.strip("/")
            before.mkdir(parents=True)
            self._call("mount", "--rbind", place, str(before))
            self._call("mount", "-t", "tmpfs", "tmpfs", place)
            for path in needed:
                if path.is_relative_to(place) and not path.exists():
                    path.mkdir(parents=True)
                    self._call("mount", "--rbind", str(before / path.relative_to(place)), str(path))
        for model in ("digits", "churn"):
            (Path("/srv/models") / model).mkdir(parents=True)
        Path("/srv/disk").mkdir(mode=0o755)  # For volumes.yaml.

    def _network(self) -> None:
        for words in (
            "link set lo up",
            # A bridge without ports has the node's address, because not every kernel has `dummy` links.
            "link add node0 type bridge",
            f"address add {NETWORK.address}/24 dev node0",
            "link set node0 up",
            "route add default dev node0",  # The API server needs one.
        ):
            self._call(str(self.debian.path("ip")), *words.split())
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _containerd(self) -> Process:
        (self.room / "cni").mkdir()
        # Each pod has a link to the node, so that responses return the same way.
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": f"{self.room}/cni-addresses",
        }
        plugins = [{"type": "ptp", "ipMasq": False, "ipam": addresses}]
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
        (self.room / "cni" / "pods.conflist").write_text(json.dumps(network))
        file = self.room / "containerd.toml"
        file.write_text(CONTAINERD.format(room=self.room, packages=self.debian.root))
        return self._start("containerd", str(self.debian.path("containerd")), "--config", str(file))

    def _images(self, containerd: Process, archives: Sequence[Path]) -> None:
        ctr = (str(self.debian.path("ctr")), f"--address={self.room}/containerd.sock", "--namespace=k8s.io")

        def answers() -> bool:
            return subprocess.run([*ctr, "version"], env=self.environment, capture_output=True).returncode == 0

        containerd.wait_until(answers, START_SECONDS)
        for archive in archives:
            self._call(*ctr, "images", "import", str(archive))
        # The same image under another tag, for rollouts.
        for name in ("triton", "proxy", "eviction-policy"):
            self._call(*ctr, "images", "tag", f"localhost/{name}:test", f"localhost/{name}:next")

    def _kubelet(self, cluster: LocalCluster) -> None:
        file = self.room / "kubelet.yaml"
        settings = KUBELET | {
            "containerRuntimeEndpoint": f"unix://{self.room}/containerd.sock",
            "cgroupRoot": f"/tidegate-{self.folder.name}",
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.room / "volume-plugins"),
        }
        file.write_text(json.dumps(settings))
        kubelet = self._start(
            "kubelet",
            str(tools.path("kubelet")),
            f"--config={file}",
            f"--kubeconfig={cluster.user(f'system:node:{NODE}', ['system:nodes'])}",
            f"--hostname-override={NODE}",
            f"--node-ip={NETWORK.address}",
            f"--root-dir={self.room / 'kubelet'}",
            f"--cert-dir={self.room / 'kubelet-pki'}",
        )
        ready = ("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=1s")

        def is_ready() -> bool:
            return cluster.kubectl(*ready, check=False).returncode == 0

        kubelet.wait_until(is_ready, START_SECONDS)

    def _kube_proxy(self, cluster: LocalCluster) -> None:
        file = self.room / "kube-proxy.yaml"
        client = {"clientConnection": {"kubeconfig": str(cluster.user("system:kube-proxy"))}}
        file.write_text(json.dumps(KUBE_PROXY | client))
        self._start("kube-proxy", str(tools.path("kube-proxy")), f"--config={file}")

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=120)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"

    def _start(self, name: str, *command: str) -> Process:
        log = self.folder / "logs" / f"{name}.log"
        return self.stack.enter_context(running(name, command, log, self.environment))


# ---- configuration of the programs ----

# It uses only keys of containerd 1.6, the version of Debian 12.
CONTAINERD = """\
version = 2
root = "{room}/containerd/root"
state = "{room}/containerd/state"
oom_score = 0
[grpc]
  address = "{room}/containerd.sock"
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
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    # Its network has no other hosts, and the API server of a local cluster has no certificate.
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs",
    "failCgroupV1": False,
    "failSwapOn": False,
    "oomScoreAdj": 0,
    "resolvConf": "",
    "clusterDNS": [DNS_ADDRESS],
    "clusterDomain": "cluster.local",
    # The delay until a changed ConfigMap reaches a pod. The default is a minute.
    "syncFrequency": "2s",
    "imageMinimumGCAge": "24h",
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
}
KUBE_PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "hostnameOverride": NODE,
    "clusterCIDR": PODS,
    "mode": "nftables",
    # As slow as in a large cluster, so that a pod that stops before all others have noticed loses calls.
    "nftables": {"minSyncPeriod": "3s"},
    # The limits of connection tracking belong to the whole machine.
    "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
}


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
