"""The Lease of a run: whose it is, and when it may be taken over. A table stands in for the API server."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rollout import processes
from rollout.engines import lease, watched
from rollout.engines.lease import RolloutLease
from rollout.health import Target
from stacks.command import CommandError

from .conftest import ENVIRONMENT, ROOT, Capsys, Patch, soon

HOLDS = """
import sys, time
from pathlib import Path
from rollout import processes
with processes.showing_life(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


class Server:
    """Keeps one Lease as an API server does: it refuses a change of what is not as it was seen."""

    context = "kind-lab"

    def __init__(self, holder: str = "") -> None:
        self.version = 0
        self.lease: dict[str, Any] | None = None
        if holder:
            self._write({"metadata": {"name": lease.NAME}, "spec": {"holderIdentity": holder}})

    def _write(self, item: dict[str, Any]) -> CompletedProcess[str]:
        self.version += 1
        self.lease = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        return CompletedProcess([], 0, str(self.version), "")

    def get(self, *_: str) -> dict[str, Any] | None:
        return self.lease

    def run(self, verb: str, *_: str, stdin: str = "", **__: Any) -> CompletedProcess[str]:
        if verb == "delete":
            self.lease = None
            return CompletedProcess([], 0, "", "")
        (item,) = json.loads(stdin)["items"]
        if verb == "create" and self.lease is not None:
            return CompletedProcess([], 1, "", "AlreadyExists")
        return self._write(item)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


@pytest.fixture
def token() -> str:
    """The token of a run that another process is: alive, until it is killed."""
    return RolloutLease("ns").token


@pytest.fixture
def run(token: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLDS, token]
    process = subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("process", [os.getpid(), 999_999_999], ids=["this run's process id", "a process id of nobody"])
def test_a_holder_of_this_host_name_is_not_dead_because_of_its_process_id(
    process: int, monkeypatch: Patch, capsys: Capsys
) -> None:
    """Containers repeat host names and process ids: only a Lease that is not renewed is free."""
    monkeypatch.setattr(lease, "SECONDS", 2)
    server: Any = Server(f"me@{socket.gethostname()}, process {process} ({'a' * 32})")
    with lease.acquire_lease(server, "ns"):
        pass
    assert f"waiting: me@{socket.gethostname()}, process {process} is at work in ns …" in capsys.readouterr().err


def test_a_run_of_this_machine_that_was_killed_is_not_waited_for(
    run: "subprocess.Popen[str]", token: str, capsys: Capsys
) -> None:
    assert not processes.has_died(token)
    run.kill()
    run.communicate()
    server: Any = Server(f"me@elsewhere, process 7 ({token})")
    with lease.acquire_lease(server, "ns") as hold:
        assert hold.token != RolloutLease("ns").token
        assert hold.token in server.holder
    assert "waiting" not in capsys.readouterr().err
    assert server.lease is None
    assert not processes.life_file(token).exists()


def test_what_is_no_token_names_no_file(monkeypatch: Patch) -> None:
    monkeypatch.setattr(lease, "SECONDS", 0)
    server: Any = Server("me@elsewhere, process 7 (../../etc/passwd)")
    with lease.acquire_lease(server, "ns") as hold:
        assert hold.token in server.holder


def test_a_right_that_is_missing_is_shown_once_when_a_lease_is_renewed_and_given_back(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    class Forbidding(Server):
        def run(self, verb: str, *arguments: str, stdin: str = "", **more: Any) -> CompletedProcess[str]:
            if verb in ("replace", "delete"):
                return CompletedProcess([], 1, "", f"Error from server (Forbidden): leases: cannot {verb}")
            return super().run(verb, *arguments, stdin=stdin, **more)

        def why(self, said: str, doing: str) -> str:
            return f"{doing}: {said}"

    monkeypatch.setattr(lease, "_RENEWED_EVERY", 0.01)
    monkeypatch.setattr(lease, "_ASKED_AGAIN_AFTER", 0.01)
    server: Any = Forbidding()
    with lease.acquire_lease(server, "ns") as hold:
        assert soon(lambda: bool(hold.failures))
        assert soon(lambda: "cannot replace" in hold.failures[0])
    shown = capsys.readouterr().err
    assert shown.count("cannot replace") == 1
    assert shown.count("cannot delete") == 1


@pytest.mark.parametrize("ask", ["_lines", "_refused"])
def test_a_watch_shows_once_why_it_sees_nothing(ask: str, monkeypatch: Patch, capsys: Capsys) -> None:
    class Forbidding:
        def find(self, *_: Any) -> list[dict[str, Any]]:
            raise CommandError("events is forbidden")

    monkeypatch.setattr(watched, "_refusals", lambda *_: {})
    monkeypatch.setattr(watched, "target_of", lambda _: Target("ns", (), 80, False))
    kube: Any = Forbidding()
    watch = watched._ReadinessWatch(kube, [])
    monkeypatch.undo()
    monkeypatch.setattr(watched, "lacking", lambda *_: Forbidding().find())
    for _ in range(2):
        getattr(watch, ask)()
    assert capsys.readouterr().err.count("not seen: events is forbidden") == 1
    assert "events is forbidden" in watch.late()


def test_a_command_is_interrupted_when_the_run_that_started_it_is_killed(tmp_path: Path) -> None:
    """Helm then notes that it failed. The command gets the whole of its standard input before."""
    code = (
        "import sys; from rollout.engines.lease import RolloutLease; from rollout.engines.watched import run_watched\n"
        "run_watched(sys.argv[1:], None, RolloutLease('ns'), stdin='values')"
    )
    child = (
        "import signal, sys, time; from pathlib import Path; file = Path(sys.argv[1])\n"
        "def end(*_): file.write_text('interrupted'); sys.exit()\n"
        "signal.signal(signal.SIGINT, end)\n"
        "file.write_text(sys.stdin.read()); time.sleep(60)"
    )
    file = tmp_path / "said"
    command = [sys.executable, "-c", code, sys.executable, "-c", child, str(file)]
    with subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT) as run:
        assert soon(lambda: file.exists() and file.read_text() == "values")
        run.kill()
    assert soon(lambda: file.read_text() == "interrupted")


def test_no_code_runs_between_fork_and_exec(monkeypatch: Patch) -> None:
    """The run has threads, which may hold locks that such code waits for."""
    given: dict[str, Any] = {}

    def started(_: Any, **more: Any) -> Any:
        given.update(more)
        raise CommandError("no more")

    monkeypatch.setattr(processes, "started", started)
    with pytest.raises(CommandError, match="no more"):
        watched.run_watched(["helm"], None, RolloutLease("ns"))  # type: ignore[arg-type]
    assert "preexec_fn" not in given
