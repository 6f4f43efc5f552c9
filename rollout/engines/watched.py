"""Waits for an engine's command, or for what stands already, and meanwhile says what is not ready yet, and why."""

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
from ..health import lacking, target_of, warnings
from ..kubectl import Kubectl, KubernetesObject
from ..terminal import note
from .lease import RolloutLease

LOOK_EVERY = 4.0
_MARGIN_SECONDS = 300
_LEAST_SECONDS = 600
_FIRST_PAUSE = 0.5
_HEED_EVERY = 0.5  # How often it is asked whether the lease is still held.
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
    """Return how many seconds an `up` may take: each workload rolls pod by pod, and big models load slowly."""
    every = workloads(objects).values()
    longest = max((one.most * (one.start_seconds + one.stop_seconds) for one in every), default=0)
    return max(_LEAST_SECONDS, _MARGIN_SECONDS + longest)


def run_watched(
    command: Sequence[str],
    kube: Kubectl,
    hold: RolloutLease,
    objects: Sequence[KubernetesObject] = (),
    *,
    stdin: str = "",
) -> str | None:
    """Run a command until it ends; return None when it succeeded, else what it said, or why it could not succeed.

    What these objects lack, and what the cluster warns of, is said meanwhile. Where the lease is lost the command is
    killed, and CommandError raised: what it would note now goes into another run's records.
    """
    said: list[str] = []
    process = processes.started([*_ending_with_us(), *command], stdin=subprocess.PIPE)
    reader = threading.Thread(target=lambda: said.append(process.communicate(stdin)[0]), daemon=True)
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
    why = "".join(said)
    is_late = any(words in why for words in ("deadline exceeded", "not ready", "timed out"))
    return (looking.late() if looking and is_late else "") or why


def await_ready(kube: Kubectl, objects: Sequence[KubernetesObject], seconds: float) -> None:
    """Wait for so many seconds until what stands already is ready; raise CommandError when it is not, and say why."""
    looking = _ReadinessWatch(kube, objects)
    end, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while not looking.poll():
        if time.monotonic() > end:
            why = looking.late() or "the cluster did not say whether everything is ready"
            raise CommandError(f"nothing was changed, and {why}")
        time.sleep(pause)
        pause = min(2 * pause, LOOK_EVERY)


class _ReadinessWatch:
    """Looks at a stack while it comes up, and says what has changed since the last look."""

    def __init__(self, kube: Kubectl, objects: Sequence[KubernetesObject]) -> None:
        self._kube = kube
        self._target = target_of(objects)
        self._said: list[str] = []
        self._failures: list[str] = []
        self._old: dict[str, str] = {}
        self._old = self._warnings()  # Of earlier runs.

    def poll(self) -> bool:
        """Say what is not ready; return whether everything is."""
        lines = self._lines()
        if lines is None:
            return False  # a look that fails is no reason to give up
        for line in lines[:_MOST_LINES]:
            if line not in self._said and not line.endswith("is not there"):
                note(f"waiting: {line}")
        self._said = lines
        return not lines

    def late(self) -> str:
        """Return what is still not ready when the time is up, or why that cannot be seen."""
        lines = self._lines()
        late = "\n    ".join(self._failures[-1:] if lines is None else lines)
        return f"not everything became ready in time:\n    {late}" if late else ""

    def _lines(self) -> list[str] | None:
        """Return what is not ready, behind what the cluster warns of; None where that cannot be seen."""
        try:
            lines = lacking(self._kube, self._target)
        except CommandError as error:
            self._failed(error)
            return None
        return [*(self._warnings() if lines else ()), *lines]

    def _warnings(self) -> dict[str, str]:
        """Return what the cluster has warned of since this watch began, such as pods that a quota refuses."""
        try:
            found = warnings(self._kube, self._target)
        except CommandError as error:
            self._failed(error)
            return {}
        return {line: time for line, time in found.items() if self._old.get(line) != time}

    def _failed(self, error: CommandError) -> None:
        """Show why a look failed, once: it may be a right that is missing."""
        if str(error) not in self._failures:
            self._failures.append(str(error))
            note(f"not seen: {error}")


def _interrupt(process: "subprocess.Popen[str]") -> None:
    """Let a command end what it has begun and note that it failed; end it when it does not."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_TO_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ending_with_us() -> list[str]:
    """Return the words before a command that let the system interrupt it when this process dies.

    The new process arranges that itself, and then becomes the command. Code that runs between fork and exec, as
    `preexec_fn` does, can deadlock, because this process has threads.
    """
    if sys.platform != "linux":
        return []
    return [sys.executable, "-ISc", _LAUNCH, str(os.getpid()), str(int(signal.SIGINT))]
