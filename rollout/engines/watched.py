"""Waits for an engine's command, or for existing objects, and meanwhile prints what is not ready yet, and why."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from stacks.command import CommandError

from .. import processes
from ..changes.workloads import workloads
from ..health import Absent, lacking, target_of, warnings
from ..kubectl import Kubectl, KubernetesObject
from ..terminal import note
from .lease import RolloutLease

LOOK_EVERY = 4.0
_MARGIN_SECONDS = 300
_LEAST_SECONDS = 600
_HEED_EVERY = 0.5  # How often to check that the lease is still held.
_TO_END_SECONDS = 60.0
_MOST_LINES = 8
_LAUNCH = """\
import ctypes, os, sys
parent, number, *command = sys.argv[1:]
ctypes.CDLL(None).prctl(1, int(number))  # PR_SET_PDEATHSIG
if os.getppid() == int(parent):
    os.execv(command[0], command)
"""


def timeout_seconds(objects: Sequence[KubernetesObject]) -> int:
    """Return the timeout of an `up` in seconds. Each workload rolls pod by pod, and big models load slowly."""
    every = workloads(objects).values()
    longest = max((one.most * (one.start_seconds + one.stop_seconds) for one in every), default=0)
    return max(_LEAST_SECONDS, _MARGIN_SECONDS + longest)


def run_watched(
    command: Sequence[str],
    kube: Kubectl,
    hold: RolloutLease,
    objects: Sequence[KubernetesObject] = (),
    *,
    seconds: float = math.inf,
    stdin: str = "",
) -> str | None:
    """Run a command until it ends. Return None if it succeeded, else its output, or why it could not succeed.

    Meanwhile, print what these objects lack, and the cluster's warnings. If the command has waited for them for
    `seconds`, its own timeout, that is the reason. If the lease is lost, kill the command and raise CommandError,
    because its output would go into another run's records.
    """
    began, output = time.monotonic(), list[str]()
    process = processes.started([*_ending_with_us(), *command], stdin=subprocess.PIPE)
    reader = threading.Thread(target=lambda: output.append(process.communicate(stdin)[0]), daemon=True)
    reader.start()
    looking = _ReadinessWatch(kube, objects) if objects else None
    next_look = time.monotonic() + LOOK_EVERY
    try:
        while process.poll() is None:
            hold.ensure_held()
            if looking and time.monotonic() >= next_look:
                looking.poll()
                next_look = time.monotonic() + LOOK_EVERY
            reader.join(_HEED_EVERY)
    except BaseException:
        if hold.lost:
            process.kill()
            process.wait()
        else:
            _interrupt(process)
        raise
    reader.join(_TO_END_SECONDS)
    if process.returncode == 0:
        return None
    is_late = time.monotonic() - began >= seconds
    return (looking.late() if looking and is_late else "") or "".join(output)


def await_ready(kube: Kubectl, objects: Sequence[KubernetesObject], seconds: float, pause: float = 0.5) -> None:
    """Wait so many seconds at most until existing objects are ready. Raise CommandError with the reason after that."""
    looking = _ReadinessWatch(kube, objects)
    end = time.monotonic() + seconds
    while not looking.poll():
        if time.monotonic() > end:
            why = looking.late() or "the cluster did not report whether everything is ready"
            raise CommandError(f"nothing was changed, and {why}")
        time.sleep(pause)
        pause = min(2 * pause, LOOK_EVERY)


class _ReadinessWatch:
    """Checks a stack while it starts, and prints what changed since the last check."""

    def __init__(self, kube: Kubectl, objects: Sequence[KubernetesObject]) -> None:
        self._kube = kube
        self._target = target_of(objects)
        self._shown: list[str] = []
        self._failures: list[str] = []
        self._old: dict[str, str] = {}
        self._old = self._warnings()  # From earlier runs.

    def poll(self) -> bool:
        """Print what is not ready. Return whether everything is."""
        lines = self._lines()
        if lines is None:
            return False  # a failed check is no reason to give up
        for line in lines[:_MOST_LINES]:
            if line not in self._shown and not isinstance(line, Absent):
                note(f"waiting: {line}")
        self._shown = lines
        return not lines

    def late(self) -> str:
        """Return what is still not ready at the timeout, or why that cannot be checked."""
        lines = self._lines()
        late = "\n    ".join(self._failures[-1:] if lines is None else lines)
        return f"not everything became ready in time:\n    {late}" if late else ""

    def _lines(self) -> list[str] | None:
        """Return what is not ready, after the cluster's warnings. None if that cannot be checked."""
        try:
            lines = lacking(self._kube, self._target)
        except CommandError as error:
            self._failed(error)
            return None
        return [*(self._warnings() if lines else ()), *lines]

    def _warnings(self) -> dict[str, str]:
        """Return the cluster's warnings since this watch began, such as pods that a quota refuses."""
        try:
            found = warnings(self._kube, self._target)
        except CommandError as error:
            self._failed(error)
            return {}
        return {line: time for line, time in found.items() if self._old.get(line) != time}

    def _failed(self, error: CommandError) -> None:
        """Print, once for each error, why a check failed: a permission may be missing."""
        if str(error) not in self._failures:
            self._failures.append(str(error))
            note(f"cannot check readiness: {error}")


def _interrupt(process: "subprocess.Popen[str]") -> None:
    """Let a command finish its current step and record that it failed. Kill it if it does not end."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_TO_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ending_with_us() -> list[str]:
    """Return a command prefix that makes the system interrupt the command when this process dies.

    The new process arranges that itself, and then becomes the command. Code that runs between fork and exec, as
    `preexec_fn` does, can deadlock, because this process has threads.
    """
    if sys.platform != "linux":
        return []
    return [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), str(int(signal.SIGINT))]
