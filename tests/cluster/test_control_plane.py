"""A local control plane starts within seconds, keeps to itself, and leaves nothing behind however it ends."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lab import tools
from lab.local_cluster import ClusterError, LocalCluster, Network, control_plane, processes, watch
from lab.local_cluster import cluster as cluster_module
from lab.local_cluster import folder as place
from lab.local_cluster.folder import free_port, locked

from .world import ROOT, until

MakeCluster = Callable[..., LocalCluster]
STARTER = """
import sys
from pathlib import Path
from lab.local_cluster import LocalCluster
how = sys.argv[2]
never = {"kube-controller-manager": ["--controllers=-*"]}  # there will be no `default` service account
cluster = LocalCluster.start(Path(sys.argv[1]), outlives=how != "dies", options=never if how == "is never done" else {})
print("ready", flush=True)
if how == "dies":
    sys.stdin.read()
"""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Start a cluster in tmp_path/cluster from a Python process of its own; whatever is left of it is ended."""
    begun: list[subprocess.Popen[str]] = []

    def begin(how: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", STARTER, str(tmp_path / "cluster"), how]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "contracts")))}
        begun.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()
    processes.end((tmp_path / "cluster").resolve())


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


def gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent has not looked yet has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_all_programs_run_and_the_api_server_is_the_pinned_kubernetes(cluster: LocalCluster) -> None:
    """Etcd, API server, controller manager, scheduler and kwok; the version is the one of lab/tools/go.mod."""
    assert cluster.pids.keys() == {*control_plane.PROGRAMS}
    version = json.loads(cluster.kubectl("get", "--raw", "/version").stdout)
    assert version["gitVersion"] == f"v{tools.find('kube-apiserver').version}"
    assert cluster.context in cluster.kubectl("config", "current-context").stdout


def test_only_the_api_server_listens_and_only_on_the_loopback_address(cluster: LocalCluster) -> None:
    """Nobody else on the network reaches it, and nobody else on the machine reaches etcd."""
    found = {name: listening(pid) for name, pid in cluster.pids.items()}
    port = int(cluster.server.rpartition(":")[2])
    assert found.pop("kube-apiserver") == {("tcp", f"0100007F:{port:04X}")}
    assert found == {name: set() for name in found}


def test_what_it_writes_is_for_its_owner_alone(cluster: LocalCluster) -> None:
    """The folder cannot be entered by others, and every file with a token or a key is closed to them anyway."""
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700
    tokens = [line.split(",")[0] for line in (cluster.folder / "tokens.csv").read_text().splitlines()]
    assert len({*tokens}) == len(tokens) >= 4
    secret = []
    for file in cluster.folder.rglob("*"):
        if file.is_file() and "etcd" not in file.parts:
            text = file.read_text("utf-8", errors="replace")
            if "PRIVATE KEY-----" in text or any(token in text for token in tokens):
                secret.append(file)
    assert cluster.kubeconfig in secret
    assert cluster.folder / "pki" / "apiserver.key" in secret
    assert {stat.S_IMODE(file.stat().st_mode) for file in secret} == {0o600}
    assert not [file for file in secret if file.parent.name == "logs"]
    arguments = [Path(f"/proc/{pid}/cmdline").read_text() for pid in cluster.pids.values()]
    assert not [token for token in tokens if any(token in line for line in arguments)]


def test_nobody_gets_in_without_a_token_and_rights_are_evaluated(cluster: LocalCluster, namespace: str) -> None:
    """The administrator may do everything; somebody else what a role says, and no more."""
    cluster.kubectl("create", "namespace", namespace)
    nobody = json.loads(cluster.kubeconfig.read_text())
    nobody["users"][0]["user"] = {"token": "guessed"}
    (cluster.folder / "kubeconfigs" / "nobody").write_text(json.dumps(nobody))
    refused = cluster.kubectl("get", "pods", check=False, kubeconfig=cluster.folder / "kubeconfigs" / "nobody")
    assert refused.returncode
    assert "Unauthorized" in refused.stderr or "logged in" in refused.stderr
    alice = cluster.user("alice", ["data-scientists"])
    assert cluster.kubectl("auth", "whoami", "-o", "json", kubeconfig=alice).stdout.count('"alice"') == 1
    with pytest.raises(ClusterError, match='User "alice" cannot list resource "secrets"'):
        cluster.kubectl("get", "secrets", "-n", namespace, kubeconfig=alice)
    cluster.kubectl("create", "role", "look", "--verb=list", "--resource=pods", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "look", "--role=look", "--group=data-scientists", "-n", namespace)
    until(
        "the binding counts",
        lambda: cluster.kubectl("get", "pods", "-n", namespace, kubeconfig=alice, check=False).returncode == 0,
    )
    with pytest.raises(ClusterError, match="cannot list"):
        cluster.kubectl("get", "secrets", "-n", namespace, kubeconfig=alice)
    assert cluster.user("alice") != alice, "the same name with other groups is somebody else"


def test_a_kubelets_identity_is_held_to_its_own_node(cluster: LocalCluster) -> None:
    """The Node authorizer and its admission work: a kubelet changes no node but its own."""
    kubelet = cluster.user("system:node:cpu-1", ["system:nodes"])
    cluster.kubectl("annotate", "node", "cpu-1", "example.com/own=yes", "--overwrite", kubeconfig=kubelet)
    with pytest.raises(ClusterError, match="node 'cpu-1' cannot read 'cpu-2', only its own Node object"):
        cluster.kubectl("annotate", "node", "cpu-2", "example.com/own=yes", kubeconfig=kubelet)


def test_pod_security_and_quota_are_enforced_and_name_the_rule(cluster: LocalCluster, namespace: str) -> None:
    """Admission is what it is in a real cluster."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}])
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "c", "securityContext": {"privileged": True}}]},
    }
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted:latest": privileged'):
        cluster.apply([pod])
    cluster.kubectl("create", "quota", "few", "--hard=configmaps=0", "-n", namespace)
    number = count()

    def refused() -> bool:
        # What admission knows of a quota comes a moment after the quota's own status.
        said = cluster.kubectl("create", "configmap", f"more-{next(number)}", "-n", namespace, check=False)
        return "exceeded quota: few" in said.stderr

    until("the quota counts", refused)


@pytest.mark.thorough
def test_it_ends_with_its_block_leaves_only_logs_and_starts_again_empty(tmp_path: Path) -> None:
    """Also when the block fails. A restart is a new cluster with new secrets; other files and processes stay."""
    with pytest.raises(ZeroDivisionError), LocalCluster.start(tmp_path) as first:  # noqa: PT012
        pids, old = first.pids, first.kubeconfig.read_text()
        first.kubectl("create", "namespace", "mine")
        bystander = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
        1 / 0  # noqa: B018
    try:
        assert len(pids) == len(control_plane.PROGRAMS)
        assert all(gone(pid) for pid in pids.values())
        assert {entry.name for entry in tmp_path.iterdir()} == {"logs", ".lock"}
        assert bystander.poll() is None
        first.stop()  # again does no harm
    finally:
        bystander.kill()
        bystander.wait()
    (tmp_path / "notes.txt").write_text("kept")
    with LocalCluster.start(tmp_path, name="own") as second:
        assert second.kubectl("get", "namespace", "mine", check=False).returncode
        assert second.kubeconfig.read_text() != old
        assert (tmp_path / "notes.txt").read_text() == "kept"


@pytest.mark.thorough
def test_a_killed_parent_takes_its_cluster_along(
    starter: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    """The kernel sees to it; and the next start finds what is left in the folder, and clears it away."""
    process = starter("dies")
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    folder = (tmp_path / "cluster").resolve()
    pids = processes.of(folder)
    assert pids.keys() == {*control_plane.PROGRAMS}
    process.kill()
    until("all have ended", lambda: all(gone(pid) for pid in pids.values()))
    assert (folder / "cluster.json").exists()
    assert LocalCluster.running(folder) is None
    with LocalCluster.start(folder) as running:
        assert running.get("namespace", "default")["status"]["phase"] == "Active"


@pytest.mark.thorough
def test_one_that_outlives_its_starter_is_found_again_and_refuses_a_second_start(
    starter: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    """As `make up CLUSTER=local` and `make down` need it."""
    folder = tmp_path / "cluster"
    out, _ = starter("outlives").communicate(timeout=120)
    assert out == "ready\n"
    found = LocalCluster.running(folder)
    assert found
    assert found.get("namespace", "default")["status"]["phase"] == "Active"
    with pytest.raises(ClusterError, match=r"runs already in .*kube-apiserver \d+.*\n.*another folder"):
        LocalCluster.start(folder)
    assert found.pids.keys() == {*control_plane.PROGRAMS}, "the refused start has ended nothing"
    pids = found.pids
    assert LocalCluster.remove(folder) is True
    assert all(gone(pid) for pid in pids.values())
    assert not folder.exists()
    assert LocalCluster.remove(folder) is False


@pytest.mark.thorough
@pytest.mark.parametrize("with_its_watcher", [False, True])
def test_a_start_that_is_killed_half_way_leaves_nothing(
    starter: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path, with_its_watcher: bool
) -> None:
    """Also of programs that were to outlive it: the watcher ends them, or else the next start, by their marks."""
    folder = (tmp_path / "cluster").resolve()
    process = starter("is never done")
    left = until("the API server has been started", lambda: processes.of(folder).get("kube-apiserver"))
    (watcher,) = watchers(folder)
    if with_its_watcher:
        os.kill(watcher, signal.SIGKILL)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if not with_its_watcher:
        until("all have ended", lambda: gone(left) and not processes.of(folder) and not watchers(folder))
        return
    assert not gone(left)
    assert LocalCluster.running(folder) is None
    with LocalCluster.start(folder) as running:
        assert gone(left)
        assert running.pids.keys() == {*control_plane.PROGRAMS}


def watchers(folder: Path) -> list[int]:
    """Return the processes that watch over a start in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if [os.fsencode(word) for word in (*watch.COMMAND, folder)] == words[:-1]:
                    found.append(int(entry.name))
    return found


@pytest.mark.thorough
def test_a_watcher_of_a_start_that_was_done_when_it_was_killed_ends_nothing(tmp_path: Path) -> None:
    """Neither that cluster, nor one that somebody else has started there meanwhile."""
    with LocalCluster.start(tmp_path) as running:
        command = [*watch.COMMAND, str(running.folder)]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True, timeout=60)
        assert running.pids.keys() == {*control_plane.PROGRAMS}


@pytest.mark.thorough
def test_ids_of_a_killed_run_that_belong_to_others_now_are_left_alone(tmp_path: Path) -> None:
    """What a file says about ids is for people: programs are known by their marks."""
    with subprocess.Popen(["sleep", "60"]) as bystander:
        old = {"context": "local", "port": 1, "network": {}, "command_prefix": [], "pids": {"etcd": bystander.pid}}
        (tmp_path / "cluster.json").write_text(json.dumps(old))
        assert LocalCluster.running(tmp_path) is None
        with LocalCluster.start(tmp_path):
            assert bystander.poll() is None
        assert bystander.poll() is None
        bystander.kill()


def test_of_two_starts_at_once_one_is_told_to_wait(tmp_path: Path) -> None:
    """One message, and nothing of the other one is touched."""
    with locked(tmp_path), pytest.raises(ClusterError, match="Another process is starting or stopping") as caught:
        LocalCluster.start(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert not processes.of(tmp_path.resolve())


def files_in(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Somebody's folder, with names that a cluster uses too."""
    for name in ("logs/app.log", "etcd/data", "thesis.txt", "kubeconfig"):
        (tmp_path / "theirs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "theirs" / name).write_text("dear")
    return tmp_path / "theirs"


@pytest.mark.parametrize("do", [LocalCluster.remove, LocalCluster.start])
def test_somebodys_files_are_refused_and_stay(theirs: Path, do: Callable[[Path], Any]) -> None:
    """A folder without the mark of a cluster, as it is and behind a link; not even its rights change."""
    theirs.chmod(0o755)
    before = files_in(theirs)
    with pytest.raises(ClusterError, match=r"No local cluster made etcd, logs, kubeconfig in .*nothing was removed"):
        do(theirs)
    link = theirs.parent / "link"
    link.symlink_to(theirs)
    with pytest.raises(ClusterError, match=f"link is a symbolic link to {theirs}, .*nothing was removed"):
        do(link)
    assert link.is_symlink()
    assert files_in(theirs) == before
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o755


@pytest.mark.parametrize("do", [LocalCluster.remove, LocalCluster.start])
@pytest.mark.parametrize("name", ["etcd", "logs", "tokens.csv", ".lock"])
def test_a_link_in_a_clusters_folder_is_refused(
    theirs: Path, tmp_path: Path, do: Callable[[Path], Any], name: str
) -> None:
    """Otherwise programs would write, and a cleaning remove, wherever it leads."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    place.mark(folder)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(theirs / "logs")
    before = files_in(theirs)
    with pytest.raises(ClusterError, match=f"No local cluster made {name} in "):
        do(folder)
    assert (folder / name).is_symlink()
    assert files_in(theirs) == before


def test_a_removal_takes_what_a_cluster_made_and_leaves_the_rest(theirs: Path, tmp_path: Path) -> None:
    """Links within what it made are removed and not followed; an empty folder goes, one of somebody's stays."""
    folder = tmp_path / "cluster"
    for more in (False, True):
        (folder / "etcd").mkdir(parents=True)
        place.mark(folder)
        (folder / "etcd" / "link").symlink_to(theirs)
        (folder / "stages.yaml").write_text("")
        if more:
            (folder / "notes.txt").write_text("kept")
        assert LocalCluster.remove(folder) is False
        assert folder.exists() is more
    assert files_in(folder) == {"notes.txt": "kept"}
    assert LocalCluster.remove(folder) is False
    assert files_in(folder) == {"notes.txt": "kept"}
    assert len(files_in(theirs)) == 4


@pytest.mark.parametrize("program", [None, "etcd", "sleep"])
def test_a_process_that_inherited_the_marks_is_left_alone(tmp_path: Path, program: str | None) -> None:
    """With one mark or both: it is none of the programs."""
    marks = {processes.FOLDER_MARK: str(tmp_path)} | ({processes.PROGRAM_MARK: program} if program else {})
    bystander = subprocess.Popen(["sleep", "60"], env=os.environ | marks)
    try:
        assert not processes.of(tmp_path)
        processes.end(tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_program_is_found_while_its_launcher_stands_for_it(tmp_path: Path) -> None:
    """A start that is killed in that moment leaves nothing either."""
    marks = {processes.FOLDER_MARK: str(tmp_path), processes.PROGRAM_MARK: "etcd"}
    launcher = subprocess.Popen(["sh", "-c", "sleep 60; :", "sh", "/somewhere/etcd"], env=os.environ | marks)
    try:
        until("it is found", lambda: processes.of(tmp_path) == {"etcd": launcher.pid})
        processes.end(tmp_path, [launcher])
        assert launcher.returncode == -signal.SIGKILL
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize(
    ("program", "option"),
    [
        ("etcd", "--data-dir=/proc/no-such-option"),
        ("kube-apiserver", "--no-such-option=1"),
        ("kube-scheduler", "--no-such-option=1"),
    ],
)
@pytest.mark.thorough
def test_a_program_that_ends_at_once_is_named_with_its_last_words(tmp_path: Path, program: str, option: str) -> None:
    """And the others are ended."""
    with pytest.raises(ClusterError, match=rf"(?s){program} ended with exit code \d+.*log: .*no-such-option"):
        LocalCluster.start(tmp_path, options={program: [option]})
    assert not processes.of(tmp_path.resolve())


@pytest.mark.thorough
def test_somebody_who_stops_a_start_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the API server comes up."""

    def stopped(self: LocalCluster, *_: str) -> bool:
        assert {"etcd", "kube-apiserver"} <= self.pids.keys()
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_module.LocalCluster, "_answers", stopped)
    with pytest.raises(KeyboardInterrupt):
        LocalCluster.start(tmp_path)
    assert not processes.of(tmp_path.resolve())


@pytest.mark.thorough
def test_two_clusters_side_by_side_know_nothing_of_each_other(cluster: LocalCluster, make_cluster: MakeCluster) -> None:
    """As two data planes; the administrator of one is nobody in the other."""
    other = make_cluster(name="other")
    assert other.server != cluster.server
    assert other.context == "other"
    stranger = json.loads(other.kubeconfig.read_text())
    stranger["clusters"] = json.loads(cluster.kubeconfig.read_text())["clusters"]
    stranger["contexts"][0]["context"]["cluster"] = cluster.context
    path = other.folder / "kubeconfigs" / "stranger"
    path.write_text(json.dumps(stranger))
    refused = other.kubectl("get", "namespaces", check=False, kubeconfig=path)
    assert refused.returncode
    other.kubectl("create", "namespace", "only-there")
    assert cluster.kubectl("get", "namespace", "only-there", check=False).returncode


@pytest.mark.thorough
def test_every_command_stands_behind_the_prefix(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is how a cluster lives in a network namespace; here the prefix leaves a trace in the environment.

    Settings of the user's that would change what the programs do, or send them to a proxy, do not reach them.
    """
    for name in ("HTTPS_PROXY", "https_proxy", "ETCD_NAME"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    running = make_cluster(command_prefix=("env", "TIDEGATE_TRACE=here"))
    for pid in running.pids.values():
        settings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert b"TIDEGATE_TRACE=here" in settings
        assert not [item for item in settings if b"192.0.2.1" in item]
    found = LocalCluster.running(running.folder)
    assert found
    assert found.command_prefix == ("env", "TIDEGATE_TRACE=here")


def test_the_users_own_settings_are_left_alone(cluster: LocalCluster, tmp_path: Path, monkeypatch: Any) -> None:
    """No file of kubectl's in the home folder, no kubeconfig of the user's, no settings for etcd from outside."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "theirs"))
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:9")
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert cluster.get("namespace", "default")["metadata"]["name"] == "default"
    assert cluster.environment()["NO_PROXY"] == "example.com,127.0.0.1"
    assert list(tmp_path.iterdir()) == []
    assert processes.FOLDER_MARK not in cluster.environment()


def test_in_a_network_of_its_own_the_api_server_is_reachable_and_advertised() -> None:
    """The addresses that a real kubelet and its pods need; nothing is started for this."""
    network = Network(address="10.99.0.1", port=6443, services="10.96.0.0/16", pods="10.88.0.0/16")
    plane = control_plane.ControlPlane(Path("/nowhere"), "node", network, 6443)
    assert plane.server == "https://10.99.0.1:6443"
    words = plane.command("kube-apiserver")
    assert {"--bind-address=0.0.0.0", "--advertise-address=10.99.0.1", "--endpoint-reconciler-type=lease"} <= {*words}
    assert {"--allocate-node-cidrs", "--cluster-cidr=10.88.0.0/16"} <= {*plane.command("kube-controller-manager")}


def test_clusters_that_start_at_once_hold_different_ports() -> None:
    with ExitStack() as starting:
        ports = [starting.enter_context(free_port(Network())) for _ in range(300)]
        assert len(set(ports)) == 300


def test_a_port_that_is_held_can_be_listened_on_by_the_api_server() -> None:
    with free_port(Network()) as port, socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen()


def test_an_ingress_and_a_load_balancer_get_an_address(cluster: LocalCluster) -> None:
    """As controllers publish one: Pulumi waits for it."""
    meta = {"name": "published", "namespace": "default"}
    ports = [{"port": 80}]
    backend = {"service": {"name": "published", "port": {"number": 80}}}
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta}
    inner = {**service, "metadata": {**meta, "name": "inner"}, "spec": {"ports": ports}}
    balanced = {**service, "spec": {"type": "LoadBalancer", "ports": ports}}
    cluster.apply([inner, balanced, {**ingress, "spec": {"defaultBackend": backend}}])

    def addresses() -> list[Any]:
        found = [cluster.get(kind, "published", "default") for kind in ("ingress", "service")]
        return [item["status"]["loadBalancer"].get("ingress") for item in found]

    until("both have one", lambda: all(addresses()))
    assert cluster.get("service", "inner", "default")["status"]["loadBalancer"] == {}
