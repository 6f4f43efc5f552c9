"""What `tidegate up --cluster local` and `tidegate down --cluster local` do around the engine."""

import io
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cli.app import app
from lab import tools
from lab.local_cluster import LocalCluster, Network, processes
from lab.local_cluster.folder import locked, mark, private_folder
from rollout import local
from rollout.contexts import LOCAL
from rollout.health import in_words
from rollout.render import render
from stacks.command import CommandError
from stacks.stack import Definition, Stack

from .world import DEFINITIONS, REFERENCE, objects_of, read, settled, until

A100 = "NVIDIA-A100-SXM4-80GB"


def start(definition: Definition, stacks: Sequence[Stack], folder: Path | None = None) -> LocalCluster:
    return local.start_local(definition, objects_of(definition, *(stack.name for stack in stacks)), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a local cluster that outlives its starter, and is taken down after the test all the same."""
    yield tmp_path / "local"
    local.stop_local(tmp_path / "local")


class ReachedError(Exception):
    """The end of what a test looks at."""


def reached(*_: Any, **__: Any) -> None:
    raise ReachedError


def text_of(cluster: LocalCluster, stacks: tuple[Stack, ...]) -> str:
    screen = Console(width=160, file=io.StringIO())
    with screen.capture() as capture:
        screen.print(local.placement_table(cluster, stacks))
    return capture.get()


def test_a_local_cluster_that_goes_while_stacks_come_up_is_told_of(tmp_path: Path) -> None:
    gone = LocalCluster(tmp_path, "local", Network(), 1)
    with pytest.raises(
        CommandError, match=r"^the local cluster answers no more: .+\nIf it was taken down: tidegate up"
    ):
        local.placement_table(gone, local.local_stacks(read(REFERENCE)))


def test_of_each_environment_the_first_stack_lives_in_a_local_cluster() -> None:
    """Two data planes of one environment would be the same namespace."""
    definition = read(REFERENCE)
    assert [stack.name for stack in local.local_stacks(definition)] == ["dev-lab", "prod-east"]
    assert [stack.name for stack in local.local_stacks(definition, "prod-east")] == ["prod-east"]
    contexts = {stack.data_plane.context_name for stack in local.local_stacks(definition)}
    assert contexts == {LOCAL}, "previews and `up` say the same of it"
    said = r"one stack of each environment, and not prod-west.*\n?.*dev-lab, prod-east"
    with pytest.raises(CommandError, match=said):
        local.local_stacks(definition, "prod-west")


def test_environments_that_share_a_namespace_do_not_stand_together(tmp_path: Path) -> None:
    """On data planes of their own they may; here one must be chosen."""
    changes = {"namespace: inference-dev": "namespace: inference", "namespace: inference-prod": "namespace: inference"}
    definition = read(REFERENCE, tmp_path, **changes)
    with pytest.raises(CommandError, match=r"dev-lab, prod-east live in the same namespace, inference") as caught:
        local.local_stacks(definition)
    assert "--stack dev-lab" in str(caught.value)
    assert [stack.name for stack in local.local_stacks(definition, "dev-lab")] == ["dev-lab"]


def test_a_local_cluster_is_started_found_again_updated_and_taken_down(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way of a person: up, look, compare, up again with another definition, down."""
    monkeypatch.setattr(local, "local_folder", lambda: folder)
    for name in ("KUBECONFIG", "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is put back afterwards
    page = tmp_path / "page.md"
    preview = ["preview", str(REFERENCE), "--cluster", "local", "--stack", "dev-lab", "--summary", str(page)]
    done = CliRunner().invoke(app, preview, catch_exceptions=False)
    assert done.exit_code == 1
    assert "there is no local cluster to compare with" in done.stderr
    assert f"tidegate up {REFERENCE} --cluster local" in done.stderr

    definition = read(REFERENCE)
    stacks = local.local_stacks(definition)
    cluster = start(definition, stacks, folder)
    assert cluster.context == "local"
    names = {item["metadata"]["name"] for item in cluster.get("nodes")}
    assert names == {"lab-gpu-1", "lab-cpu-1", "lab-cpu-2", "east-gpu-1", "east-gpu-2", "east-cpu-1", "east-cpu-2"}
    cluster.apply([item for stack in stacks for item in render(stack, definition).objects])
    settled(cluster, "inference-dev", "inference-prod")
    text = text_of(cluster, stacks)
    assert text.count("1 × MIG 1g.10gb of NVIDIA-A100-SXM4-80GB") == 4
    assert "lab-gpu-1" in text
    assert "no GPU" in text
    assert CliRunner().invoke(app, preview, catch_exceptions=False).exit_code == 0
    assert page.read_text("utf-8").startswith("**✅ 1 stack: 1 unchanged**")

    pids = cluster.pids
    changed = read(REFERENCE, tmp_path, **{f"nodes: 2\n        product: {A100}": f"nodes: 3\n        product: {A100}"})
    again = start(changed, local.local_stacks(changed), folder)
    assert again.pids == pids, "the same cluster"
    assert {item["metadata"]["name"] for item in again.get("nodes")} == {*names, "east-gpu-3"}
    start(definition, stacks[:1], folder)  # one stack alone takes no other's nodes away
    assert {item["metadata"]["name"] for item in again.get("nodes")} == names
    assert again.get("statefulset", "preload-main", "inference-dev")["status"]["readyReplicas"] == 1

    assert local.stop_local(folder) is True
    assert not processes.of(folder.resolve())
    assert not folder.exists()
    assert local.stop_local(folder) is False


@pytest.mark.thorough
def test_a_second_up_waits_for_the_first_that_starts_the_cluster(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both find the same cluster, and whoever waits is told so."""
    definition = read(REFERENCE)
    stacks = local.local_stacks(definition, "dev-lab")
    private_folder(folder)
    started: list[LocalCluster] = []
    with locked(folder):  # as another process that is about to start it
        thread = threading.Thread(target=lambda: started.append(start(definition, stacks, folder)))
        thread.start()
        until("it says that it waits", lambda: "waiting: another process is at work" in capsys.readouterr().err)
        assert not processes.of(folder.resolve())
    thread.join(120)
    assert [cluster.folder for cluster in started] == [folder.resolve()]
    pids = started[0].pids
    assert start(definition, stacks, folder).pids == pids


def test_nobody_waits_for_ever_for_another_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is the message of before."""
    monkeypatch.setattr(local, "_LONGEST_WAIT", 0.5)
    definition = read(REFERENCE)
    private_folder(folder)
    with locked(folder), pytest.raises(CommandError, match="Another process is starting or stopping"):
        start(definition, local.local_stacks(definition, "dev-lab"), folder)


def test_of_a_data_plane_with_very_many_nodes_some_are_simulated_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enough to look around, and not thousands."""
    got: list[Any] = []

    def add(_: LocalCluster, nodes: list[Any]) -> None:
        got.extend(nodes)
        raise ReachedError

    monkeypatch.setattr(LocalCluster, "start", lambda *_, **__: object.__new__(LocalCluster))
    monkeypatch.setattr(LocalCluster, "add_nodes", add)
    many = {f"nodes: 2\n        product: {A100}": f"nodes: 900\n        product: {A100}"}
    definition = read(REFERENCE, tmp_path, **many)
    with pytest.raises(ReachedError):
        start(definition, local.local_stacks(definition, "dev-lab"), private_folder(tmp_path / "cluster"))
    assert sum(item["metadata"]["name"].startswith("east-gpu-") for item in got) == 20
    assert f"Of the 900 nodes with {A100} of east, 20 are simulated." in capsys.readouterr().err


def test_people_are_told_how_to_look_around_and_how_to_take_it_down(cluster: LocalCluster) -> None:
    """Commands to copy: with the kubeconfig, and with a kubectl that is there."""
    text = local.how_to_look_around(cluster)
    assert f"export KUBECONFIG={cluster.kubeconfig}" in text
    assert "tidegate down --cluster local" in text
    kubectl = next(line.split()[0] for line in text.splitlines() if " get pods" in line)
    assert kubectl in ("kubectl", str(tools.path("kubectl")))


def test_the_first_time_people_are_told_that_building_kubernetes_takes_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And only then: nothing is said where all is built."""
    monkeypatch.setattr(LocalCluster, "start", reached)
    definition = read(DEFINITIONS / "cpu-only.yaml")
    for missing, said in ((("etcd", "kube-apiserver"), True), ((), False)):
        monkeypatch.setattr(tools, "missing", lambda *_, found=missing: found)
        with pytest.raises(ReachedError):
            start(definition, local.local_stacks(definition), tmp_path)
        err = capsys.readouterr().err
        assert ("etcd, kube-apiserver must be built from source first" in err) is said
        assert ("some minutes" in err) is said


def test_trouble_with_the_cluster_is_an_error_in_words(tmp_path: Path) -> None:
    """No traceback: a file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    definition = read(DEFINITIONS / "cpu-only.yaml")
    with pytest.raises(CommandError, match="there is no local cluster: A local cluster cannot live in"):
        start(definition, local.local_stacks(definition), tmp_path / "file" / "cluster")


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """A local cluster of which only etcd runs still; a program that does nothing stands for it."""
    folder = tmp_path / "local"
    folder.mkdir()
    mark(folder)
    (folder / "cluster.json").write_text("{}")
    (folder / "notes.txt").write_text("kept")
    marks = {processes.FOLDER_MARK: str(folder.resolve()), processes.PROGRAM_MARK: "etcd"}
    etcd = subprocess.Popen(["sh", "-c", "read nothing", "etcd"], stdin=subprocess.PIPE, env=os.environ | marks)
    monkeypatch.setattr(local, "local_folder", lambda: folder)
    until("etcd runs", lambda: processes.of(folder.resolve()))
    yield etcd
    etcd.kill()
    etcd.communicate()


INCOMPLETE = (
    "The local cluster is incomplete: kube-apiserver, kube-controller-manager, kube-scheduler, kwok are not running"
)


def test_down_ends_and_removes_what_is_left_of_an_incomplete_cluster(
    half: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    """And says so, and names what it leaves; a second time there is none."""
    (tmp_path / "local" / "pulumi" / "state").mkdir(parents=True)
    done = CliRunner().invoke(app, ["down", str(REFERENCE), "--cluster", "local"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert f"{INCOMPLETE}. What was left of it is ended and removed." in done.stderr
    assert f"Left in {tmp_path / 'local'}, for no local cluster made it: notes.txt." in done.stderr
    assert done.stdout == "The local cluster is gone, with all that was in it.\n"
    assert half.wait(60)
    assert [entry.name for entry in (tmp_path / "local").iterdir()] == ["notes.txt"]
    done = CliRunner().invoke(app, ["down", str(REFERENCE), "--cluster", "local"], catch_exceptions=False)
    assert done.stdout == "There is no local cluster.\n"


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(("command", "how"), [("preview", "tidegate up"), ("down", "tidegate down")])
def test_nothing_is_compared_or_taken_down_alone_in_an_incomplete_cluster(
    command: str, how: str, tmp_path: Path
) -> None:
    """It is told what does not run, and what to do."""
    more = ["--summary", str(tmp_path / "page.md")] if command == "preview" else []
    words = [command, str(REFERENCE), "--cluster", "local", "--stack", "dev-lab", *more]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 1
    assert INCOMPLETE in done.stderr
    assert re.search(rf"{how}( [^ ]+)? --cluster local", done.stderr)


@pytest.mark.usefixtures("half")
def test_an_incomplete_cluster_is_started_anew_and_what_is_lost_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it happens."""
    monkeypatch.setattr(LocalCluster, "start", reached)
    definition = read(DEFINITIONS / "cpu-only.yaml")
    with pytest.raises(ReachedError):
        start(definition, local.local_stacks(definition))
    said = f"{INCOMPLETE}. It is started anew, and empty: all that was brought up in it is lost."
    assert said in capsys.readouterr().err


SPEC = {
    "nodeSelector": {"nvidia.com/gpu.product": "X"},
    "containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}],
}
PREEMPTION = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "0/3 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb, 2 node(s) didn't match Pod's node "
            f"affinity/selector.{PREEMPTION}",
            "No nvidia.com/mig-1g.10gb is left for it (1 asked for): 1 node of the right kind has too few free. "
            "2 nodes of another kind do not count.",
        ),
        (
            "0/2 nodes are available: 2 Insufficient cpu.",
            "No cpu is left for it: 2 nodes of the right kind have too few free.",
        ),
        (
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated "
            "taint(s). no new claims to deallocate, preemption: not eligible",
            "No node is of the kind that it asks for (nvidia.com/gpu.product=X).",
        ),
        (
            "0/8 nodes are available: 8 cannot allocate all claims. still not schedulable, preemption: none",
            "No device that fits its claim is left.",
        ),
        (
            '0/8 nodes are available: persistentvolumeclaim "models" not found. not found',
            "Its claim models is not in its namespace.",
        ),
        (
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
            "A claim of it is not bound to a volume.",
        ),
        ("0/1 nodes are available: 1 something new.", "Also: 1 something new."),
        ("something else", "something else"),
    ],
)
def test_the_schedulers_words_become_sentences(said: str, words: str) -> None:
    """As the scheduler of the pinned Kubernetes says them; what is not known stays as it is."""
    assert in_words(said, SPEC) == words
