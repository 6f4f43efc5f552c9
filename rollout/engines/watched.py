"""Runs an engine's command, and meanwhile says what is not ready yet, and why."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from ..errors import RolloutError
from ..kubectl import Kubectl, KubernetesObject
from ..terminal import note
from ..waves.health import lacking, target_of

LOOK_EVERY = 4.0
PATIENCE_SECONDS = 15.0
"""How long the API server may refuse pods before waiting on is senseless."""
_TO_END_SECONDS = 60.0
_MOST_LINES = 8
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def run_watched(
    command: Sequence[str], kube: Kubectl, objects: Sequence[KubernetesObject], *, watch: bool
) -> str | None:
    """Run a command until it ends; return None when it succeeded, else why it did not.

    Where pods are refused for good the command is interrupted, as by Ctrl-C: it then notes that it failed.
    """
    said: list[str] = []
    namespace = target_of(objects).namespace
    old = _refusals(kube, namespace) if watch else {}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=_end_with_parent,
        )
    except OSError as error:
        raise RolloutError(f"{command[0]} cannot be run: {error.strerror}.") from None
    reader = threading.Thread(target=lambda: said.extend(process.stdout or ()), daemon=True)
    reader.start()
    looking = _Looking(kube, objects, namespace, old)
    refused = ""
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY)
                break
            if watch and (refused := looking.look()):
                break
        if refused:
            _interrupt(process)
    except BaseException:
        _interrupt(process)
        raise
    reader.join(_TO_END_SECONDS)
    if process.returncode == 0:
        return None
    why = "".join(said)
    if refused:
        return refused
    if "deadline exceeded" in why or "not ready" in why or "timed out" in why:
        late = looking.refused() or "\n    ".join(looking.lines())
        return f"not everything became ready in time:\n    {late}" if late else why
    return why


class _Looking:
    """Looks at a stack while it comes up, and says what has changed since the last look."""

    def __init__(
        self, kube: Kubectl, objects: Sequence[KubernetesObject], namespace: str, old: dict[str, tuple[str, str]]
    ) -> None:
        self._kube = kube
        self._target = target_of(objects)
        self._namespace = namespace
        self._old = old
        self._said: list[str] = []
        self._since: float | None = None

    def look(self) -> str:
        """Say what is not ready; return why it never will be, when pods have been refused for too long."""
        lines = self.lines()
        for line in lines[:_MOST_LINES]:
            if line not in self._said and not line.endswith("is not there"):
                note(f"waiting: {line}")
        self._said = lines
        refused = self.refused() if lines else ""
        if not refused:
            self._since = None
            return ""
        self._since = self._since or time.monotonic()
        return refused if time.monotonic() - self._since >= PATIENCE_SECONDS else ""

    def lines(self) -> list[str]:
        with suppress(RolloutError):  # a look that fails is no reason to give up
            return lacking(self._kube, self._target)
        return []

    def refused(self) -> str:
        """Return what the API server has said about pods that it refused since the command was started."""
        with suppress(RolloutError):
            found = _refusals(self._kube, self._namespace)
            return next((message for uid, (when, message) in found.items() if self._old.get(uid, ("",))[0] != when), "")
        return ""


def _refusals(kube: Kubectl, namespace: str) -> dict[str, tuple[str, str]]:
    """Return the events about pods that could not be made: for each when it was last, and what it says."""
    found = kube.find(["events"], "-n", namespace, "--field-selector", "reason=FailedCreate")
    return {
        event["metadata"]["uid"]: (
            f"{event.get('lastTimestamp')} {event.get('count')}",
            f"{event['involvedObject']['kind']} {event['involvedObject']['name']}: {event.get('message', '')}",
        )
        for event in found
        if "forbidden" in event.get("message", "") or "denied" in event.get("message", "")
    }


def _interrupt(process: "subprocess.Popen[str]") -> None:
    """Let a command end what it has begun and note that it failed; end it when it does not."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_TO_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_with_parent() -> None:
    """Have the system interrupt this process when the one that started it dies."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
