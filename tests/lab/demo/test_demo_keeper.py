"""Parts that end are started again as the kubelet does it, and their logs stay."""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.demo.keeper import FORGIVEN_SECONDS, Keeper
from lab.local_plane.process import Process, ProcessError, running


class Parts:
    """One part: a Python that sleeps, or does not start."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.log, self.stack = folder / "sleeper.log", stack
        self.fails = False
        self.start_again("")

    @property
    def parts(self) -> Mapping[str, Process]:
        return {"sleeper": self.now}

    def start_again(self, _part: str) -> None:
        program = "import time; print('it sleeps', flush=True); time.sleep(600)"
        self.now = self.stack.enter_context(running("a sleeper", [sys.executable, "-c", program], self.log))
        if self.fails:
            self.end(signal.SIGTERM)
            raise ProcessError("a sleeper ended with -15:\n  log: …")
        self.now.wait_until(lambda: "it sleeps" in self.log.read_text())

    def end(self, number: signal.Signals) -> None:
        self.now.popen.send_signal(number)
        self.now.popen.wait()


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with ExitStack() as stack:
        yield Parts(tmp_path, stack)


class Watch:
    """A keeper, what it tells, and its clock."""

    def __init__(self, parts: Parts) -> None:
        self.seconds, self.told = 0.0, list[str]()
        self.keeper = Keeper(parts, self.told.append, lambda: self.seconds)

    def look_after(self, seconds: float) -> list[str]:
        self.seconds += seconds
        self.told.clear()
        self.keeper.look()
        return self.told


def test_a_killed_part_is_told_its_log_is_kept_and_it_runs_again_at_once(parts: Parts, tmp_path: Path) -> None:
    watch, pid = Watch(parts), parts.now.pid
    assert watch.look_after(3) == []
    parts.end(signal.SIGKILL)
    ended, again = watch.look_after(1)
    kept = tmp_path / "sleeper.1.log"
    what = f"sleeper (pid {pid}) was killed (SIGKILL) after 4 s"
    assert ended == f"{what}; it is started again now. Its log: {kept}"
    assert again == f"sleeper runs again, as pid {parts.now.pid}"
    assert parts.now.pid != pid
    assert kept.read_text() == parts.log.read_text() == "it sleeps\n"


def test_one_that_ends_again_and_again_waits_twice_as_long_each_time_until_it_has_run_for_long(parts: Parts) -> None:
    watch = Watch(parts)
    waits = []
    for _ in range(8):
        parts.end(signal.SIGTERM)
        told = watch.look_after(1)
        waited = 0
        while len(told) < 2:
            told = [*told, *watch.look_after(5)]
            waited += 5
        waits.append(waited)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert "in 300 s (back-off)" in told[0]
    parts.end(signal.SIGTERM)
    assert "started again now" in watch.look_after(FORGIVEN_SECONDS + 1)[0]


def test_one_that_does_not_start_is_tried_again_later(parts: Parts, tmp_path: Path) -> None:
    watch = Watch(parts)
    parts.fails = True
    parts.end(signal.SIGKILL)
    _, failed = watch.look_after(0)
    assert failed.startswith("sleeper did not start: a sleeper ended with -15; it is started again in 10 s (back-off)")
    assert (tmp_path / "sleeper.2.log").exists()
    parts.fails = False
    assert watch.look_after(9) == []
    assert watch.look_after(1) == [f"sleeper runs again, as pid {parts.now.pid}"]
