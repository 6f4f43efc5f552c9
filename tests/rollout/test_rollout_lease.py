"""The Lease of a run: its holder, and when another run may take it over. A table replaces the API server."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from rollout import processes
from rollout.engines import lease, watched
from rollout.engines.lease import RolloutLease
from rollout.health import Target
from stacks.command import CommandError
from tests.processes import until

from .conftest import ENVIRONMENT, ROOT, Capsys, Patch


class Server:
    """Keeps one Lease like an API server: refuses a change of an outdated version."""

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


def test_a_holder_is_dead_only_if_it_renews_nothing(capsys: Capsys) -> None:
    """Containers repeat both."""
    holder = f"me@{socket.gethostname()}, process {os.getpid()}"
    server: Any = Server(f"{holder} ({'a' * 32})")
    with lease.acquire_lease(server, RolloutLease("ns", seconds=2)) as hold:
        assert hold.token in server.holder
    assert f"waiting: {holder} is at work in ns …" in capsys.readouterr().err
    assert server.lease is None


def test_a_holder_that_renews_is_waited_for_however_long_it_works() -> None:
    class Working(Server):
        """Its holder renews it at every read, for three times the timeout of a dead one, and then deletes it."""

        ends = time.monotonic() + 3

        def get(self, *_: str) -> dict[str, Any] | None:
            if self.lease and time.monotonic() > self.ends:
                self.lease = None
            elif self.lease:
                self._write(self.lease)
            return self.lease

    server: Any = Working("someone")
    with lease.acquire_lease(server, RolloutLease("ns", seconds=1)):
        assert time.monotonic() > server.ends


def test_a_missing_right_to_renew_or_release_a_lease_is_shown_once(capsys: Capsys) -> None:
    class Forbidding(Server):
        def run(self, verb: str, *arguments: str, stdin: str = "", **more: Any) -> CompletedProcess[str]:
            if verb in ("replace", "delete"):
                return CompletedProcess([], 1, "", f"Error from server (Forbidden): leases: cannot {verb}")
            return super().run(verb, *arguments, stdin=stdin, **more)

        def why(self, error: str, verb: str) -> str:
            return f"{verb}: {error}"

    server: Any = Forbidding()
    with lease.acquire_lease(server, RolloutLease("ns", renewed_every=0.01, retried_after=0.01)) as hold:
        until("it has failed", lambda: hold.failures, 60)
        assert "cannot replace" in hold.failures[0]
    shown = capsys.readouterr().err
    assert shown.count("cannot replace") == 1
    assert shown.count("cannot delete") == 1


@pytest.mark.parametrize("ask", ["_lines", "_warnings"])
def test_a_watch_shows_once_why_it_sees_nothing(ask: str, monkeypatch: Patch, capsys: Capsys) -> None:
    class Forbidding:
        def find(self, *_: Any) -> list[dict[str, Any]]:
            raise CommandError("events is forbidden")

    monkeypatch.setattr(watched, "target_of", lambda _: Target("ns", (), 80, False))
    kube: Any = Forbidding()
    watch = watched._ReadinessWatch(kube, [])
    monkeypatch.undo()
    monkeypatch.setattr(watched, "lacking", lambda *_: Forbidding().find())
    for _ in range(2):
        getattr(watch, ask)()
    assert capsys.readouterr().err.count("cannot check readiness: events is forbidden") == 1
    assert "events is forbidden" in watch.late()


def test_warnings_of_earlier_runs_are_not_repeated(monkeypatch: Patch) -> None:
    seen = {"StatefulSet a: FailedCreate: an hour ago": "12:00", "StatefulSet a: FailedCreate: exceeded quota": "12:00"}
    monkeypatch.setattr(watched, "target_of", lambda _: Target("ns", (), 80, False))
    monkeypatch.setattr(watched, "warnings", lambda *_: {**seen})
    monkeypatch.setattr(watched, "lacking", lambda *_: [])
    kube: Any = None
    watch = watched._ReadinessWatch(kube, [])
    assert not watch.late(), "everything is ready: what the engine printed is the reason"
    monkeypatch.setattr(watched, "lacking", lambda *_: ["StatefulSet a: 0 of 1 pods are available"])
    seen["StatefulSet a: FailedCreate: exceeded quota"] = "13:00"  # Kubernetes repeats it unchanged.
    assert "exceeded quota" in watch.late()
    assert "an hour ago" not in watch.late()


def test_a_command_is_interrupted_when_the_run_that_started_it_is_killed(tmp_path: Path) -> None:
    """Helm then records that it failed. The command gets all of its standard input first."""
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
    file = tmp_path / "error"
    command = [sys.executable, "-c", code, sys.executable, "-c", child, str(file)]
    with subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT) as run:
        until("it has read", lambda: file.exists() and file.read_text() == "values", 60)
        run.kill()
    until("it was interrupted", lambda: file.read_text() == "interrupted", 60)


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
