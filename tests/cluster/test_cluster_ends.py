"""A local cluster leaves nothing behind, however it ends, and touches nothing of somebody else."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.local_cluster import ClusterError, LocalCluster, control_plane, processes
from lab.local_cluster.folder import locked

from .world import ROOT, until

STARTER = """
import sys
from pathlib import Path
from lab.local_cluster import LocalCluster
how, command = sys.argv[2], LocalCluster.command
if how == "is never done":  # there will be no `default` service account
    never = {"kube-controller-manager": ["--controllers=-*"]}
    LocalCluster.command = lambda self, program: [*command(self, program), *never.get(program, ())]
LocalCluster.start(Path(sys.argv[1]), outlives=how != "dies")
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
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()
    processes.end((tmp_path / "cluster").resolve())


def gone(pid: int) -> bool:
    """Whether a process has ended; one whose parent has not looked yet has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.thorough
def test_it_ends_with_its_block_leaves_only_logs_and_starts_again_empty(tmp_path: Path) -> None:
    """Also when the block fails. A restart is a new cluster with new secrets; other processes stay."""
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
    with LocalCluster.start(tmp_path, name="own") as second:
        assert second.kubectl("get", "namespace", "mine", check=False).returncode
        assert second.kubeconfig.read_text() != old


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
    """As `make local-up` and `make local-down` need it."""
    folder = tmp_path / "cluster"
    out, _ = starter("outlives").communicate(timeout=900)
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
def test_what_is_left_of_a_start_that_was_killed_half_way_ends_with_the_next_one(
    starter: Callable[[str], "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    """Also programs that were to outlive it: they are found by their marks."""
    folder = (tmp_path / "cluster").resolve()
    process = starter("is never done")
    left = until("the API server has been started", lambda: processes.of(folder).get("kube-apiserver"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not gone(left)
    assert LocalCluster.running(folder) is None
    with LocalCluster.start(folder) as running:
        assert gone(left)
        assert running.pids.keys() == {*control_plane.PROGRAMS}


def test_of_two_starts_at_once_one_is_told_to_wait(tmp_path: Path) -> None:
    """One message, and nothing of the other one is touched."""
    with locked(tmp_path), pytest.raises(ClusterError, match="Another process is starting or stopping") as caught:
        LocalCluster.start(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert not processes.of(tmp_path.resolve())


@pytest.mark.parametrize("do", [LocalCluster.remove, LocalCluster.start])
def test_files_that_no_cluster_made_are_refused_and_stay(tmp_path: Path, do: Callable[[Path], Any]) -> None:
    """In the folder itself, and behind a link."""
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "thesis.txt").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "others")
    for folder in (tmp_path / "others", tmp_path / "link"):
        with pytest.raises(ClusterError, match=r"No local cluster made the files in .*: nothing was removed there"):
            do(folder)
    assert (tmp_path / "others" / "thesis.txt").read_text() == "text"


def test_a_process_that_inherited_the_marks_is_left_alone(tmp_path: Path) -> None:
    marks = {processes.FOLDER_MARK: str(tmp_path), processes.PROGRAM_MARK: "etcd"}
    bystander = subprocess.Popen(["sleep", "60"], env=os.environ | marks)
    try:
        assert not processes.of(tmp_path)
        processes.end(tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.thorough
def test_a_program_that_ends_at_once_is_named_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the others are ended."""
    command, program = LocalCluster.command, "kube-scheduler"

    def broken(self: LocalCluster, of: str) -> list[str]:
        return command(self, of) + (["--no-such-option=1"] if of == program else [])

    monkeypatch.setattr(LocalCluster, "command", broken)
    with pytest.raises(ClusterError, match=rf"(?s){program} ended with exit code \d+.*log: .*no-such-option"):
        LocalCluster.start(tmp_path)
    assert not processes.of(tmp_path.resolve())
