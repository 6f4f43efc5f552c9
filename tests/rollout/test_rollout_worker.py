"""The process that applies one plane: a real one, with a fake engine that hangs or fails."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollout.waves import worker
from rollout.waves.journal import History
from rollout.waves.runner import Interrupted
from rollout.waves.worker import Task, bring_up
from stacks.command import CommandError
from tests.processes import until

from .conftest import ROOT, Patch, gone

ENGINE = """
import os, signal, subprocess, sys, time
from pathlib import Path

import rollout.engines
import rollout.preflight
from rollout.render import render
from stacks.command import CommandError, for_stack

class Engine:
    name, title = "stand-in", "Stand-in 1.0"

    def render(self, stacks, definition):
        return [render(stack, definition) for stack in stacks]

    def up(self, bundle, *, wait=True):
        assert (bundle.stack.name, bundle.rendered.stack, wait) == ("prod-east", "prod-east", False)
        assert (bundle.definition.name, bundle.read_from.name) == ("known-as.yaml", "two.yaml")
        print("creating things in", bundle.stack.data_plane.name)
        print("on standard error", file=sys.stderr)
        print("run", for_stack("up", bundle.stack))
        what = os.environ["STAND_IN"]
        if what == "fails":
            raise CommandError("stack prod-east is not up:\\nexceeded quota: gpus")
        if what == "crashes":
            os._exit(9)
        if what in ("hangs", "is deaf"):
            if what == "is deaf":
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL)
            Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}")
            child.wait()
        return what != "stands"

rollout.engines.FINDERS = {"stand-in": lambda adopt: Engine()}
rollout.preflight.ensure_ready = lambda *_, **__: None  # There is no cluster.
"""

Bring = Callable[..., list[str]]
Behave = Callable[[str], None]


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """The file with the process ids of a hanging engine and its child. Both are killed at the end of the test."""
    path = tmp_path / "pids"
    yield path
    for pid in path.read_text("utf-8").split() if path.exists() else ():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.fixture
def stand_in(tmp_path: Path, pids: Path, monkeypatch: Patch) -> Behave:
    """Make workers use the fake engine, which behaves as configured."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(ENGINE, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PIDS", str(pids))
    return lambda what: monkeypatch.setenv("STAND_IN", what)


@pytest.fixture
def time_is_up(pids: Path, monkeypatch: Patch) -> None:
    """Time a worker out as soon as its engine hangs, however long it took to start."""
    clock = SimpleNamespace(monotonic=lambda: 1000.0 if pids.exists() else 0.0)
    monkeypatch.setattr(worker, "time", clock)


@pytest.fixture
def task(definition: Path) -> Task:
    return Task("prod", "east", "stand-in", "elsewhere/known-as.yaml", str(definition))


@pytest.fixture
def bring(task: Task, tmp_path: Path) -> Bring:

    def run(stop: threading.Event | None = None, **more: float) -> list[str]:
        shown: list[str] = []
        with (tmp_path / "lock").open("w") as lock:
            log = tmp_path / "logs" / "east.log"
            bring_up(task, log, lock.fileno(), 60, stop or threading.Event(), shown.append, **more)
        return shown

    return run


def test_an_engines_output_is_shown_line_by_line_and_kept(bring: Bring, stand_in: Behave, tmp_path: Path) -> None:
    stand_in("stands")
    command = "tidegate up elsewhere/known-as.yaml --cluster east --stack prod-east"
    assert bring()[:3] == ["creating things in east", "on standard error", f"run {command}"]
    log = (tmp_path / "logs" / "east.log").read_text("utf-8")
    assert log.startswith(f"creating things in east\non standard error\nrun {command}\nNothing changed: prod-east")


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("fails", r"^stack prod-east is not up:\nexceeded quota: gpus$"),
        ("crashes", r"^run tidegate up .* \(exit code 9: .*logs/east\.log\)$"),
    ],
)
def test_why_an_engine_failed_arrives_in_full(bring: Bring, stand_in: Behave, what: str, reason: str) -> None:
    stand_in(what)
    with pytest.raises(CommandError, match=reason):
        bring()


@pytest.mark.usefixtures("time_is_up")
def test_an_engine_that_takes_too_long_is_interrupted_with_all_that_it_started(
    bring: Bring, stand_in: Behave, pids: Path
) -> None:
    stand_in("hangs")
    with pytest.raises(CommandError, match="it was interrupted because it did not end within 60 s"):
        bring()
    until("the engine has ended", lambda: gone(pids), 60)


def test_a_stop_interrupts_the_engine(bring: Bring, stand_in: Behave, pids: Path) -> None:
    stand_in("hangs")
    stop = threading.Event()

    stopped: list[float] = []

    def stop_it() -> None:
        until("the engine is at work", pids.exists, 60)
        stopped.append(time.monotonic())
        stop.set()

    threading.Thread(target=stop_it, daemon=True).start()
    # A shell that starts a rollout in the background may make it ignore Ctrl-C, but workers must not inherit that.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(Interrupted):
            bring(stop=stop)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - stopped[0] < 10, "a worker answers within moments, long before it would be killed"
    until("the engine has ended", lambda: gone(pids), 60)


@pytest.mark.usefixtures("time_is_up")
@pytest.mark.thorough
def test_an_engine_that_does_not_react_is_ended(bring: Bring, stand_in: Behave, pids: Path) -> None:
    stand_in("is deaf")
    with pytest.raises(CommandError, match="it was interrupted"):
        bring(grace=1.0)
    until("the engine has ended", lambda: gone(pids), 60)


ROLLOUT = """
import json, sys, threading
from pathlib import Path
from rollout.waves.journal import History
from rollout.waves.worker import Task, bring_up
with History(Path(sys.argv[2])).locked() as lock:
    bring_up(Task(**json.loads(sys.argv[1])), Path(sys.argv[3]), lock, 60, threading.Event(), print)
"""


def test_the_engines_of_a_rollout_that_is_killed_end_and_hold_its_lock_until_then(
    task: Task, stand_in: Behave, pids: Path, tmp_path: Path
) -> None:
    stand_in("hangs")
    paths = [str(ROOT), str(ROOT / "contracts"), os.environ["PYTHONPATH"]]
    arguments = json.dumps(asdict(task)), str(tmp_path / "prod"), str(tmp_path / "east.log")
    process = subprocess.Popen(
        [sys.executable, "-c", ROLLOUT, *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    try:
        until("the engine is at work", pids.exists, 60)
    finally:
        process.kill()
        process.wait()
    with History(tmp_path / "prod").locked():
        assert gone(pids)
