"""A local control plane is what a real one is, and keeps to itself."""

import os
import stat
from pathlib import Path

import pytest

from lab.local_cluster import LocalCluster
from lab.local_cluster.control_plane import ClusterError


def listening(pid: int) -> set[tuple[str, str]]:
    """Return (protocol, address in /proc's hexadecimal) of every socket on which a process takes calls."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held.add(os.readlink(entry))
        except OSError:  # closed meanwhile
            continue
    found = set()
    for protocol, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state and f"socket:[{words[9]}]" in held:
                found.add((protocol, words[1]))
    return found


def test_only_the_api_server_listens_and_only_on_the_loopback_address(cluster: LocalCluster) -> None:
    """Nobody else on the network reaches it, and nobody else on the machine reaches etcd."""
    found = {name: listening(process.pid) for name, process in cluster.processes.items()}
    port = int(cluster.server.rpartition(":")[2])
    assert found.pop("kube-apiserver") == {("tcp", f"0100007F:{port:04X}")}
    assert found == {name: set() for name in found}


def test_what_it_writes_is_for_its_owner_alone(cluster: LocalCluster) -> None:
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700, "others cannot enter the folder"
    assert stat.S_IMODE(cluster.kubeconfig.stat().st_mode) == 0o600, "Helm warns otherwise"


def test_it_starts_in_no_link_and_in_no_folder_that_has_files(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for folder in (tmp_path, tmp_path / "mine", tmp_path / "link"):
        with pytest.raises(ClusterError, match="is not an empty folder"):
            LocalCluster.start(folder)
    assert (tmp_path / "mine").read_text() == "mine"
