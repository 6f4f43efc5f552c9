import os
import subprocess
import sys
from pathlib import Path
from select import select

import pytest

from lab.local_plane.process import Process, free_ports, running

WAITS = "import time; time.sleep(600)"
PARENT = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, '-c', '{WAITS}']).pid, flush=True)
"""


def test_children_that_outlive_their_process_end_even_after_a_wait_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("parent", [sys.executable, "-c", PARENT], log) as parent:
        parent.popen.wait(30)
        child = os.pidfd_open(int(log.read_text()))
        assert not select([child], [], [], 0)[0]
    assert select([child], [], [], 30)[0]
    os.close(child)


def test_a_process_that_got_the_id_of_one_that_ended_long_ago_lives_on(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    with subprocess.Popen([sys.executable, "-c", WAITS], start_new_session=True) as another:
        ended.pid = another.pid
        Process("ended", ended, tmp_path / "log").stop()
        with pytest.raises(subprocess.TimeoutExpired):
            another.wait(1)
        another.kill()


def test_processes_that_choose_ports_at_the_same_time_choose_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port is chosen before the server listens there, and other processes may choose it meanwhile."""
    chosen = []
    for process in range(4):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        chosen += [port for _ in range(20) for port in free_ports(5)]
    assert len({*chosen}) == len(chosen) == 400
