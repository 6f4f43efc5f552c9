"""Processes that die at a step by SIGKILL, without cleaning up."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tidegate.publishing import steps


def killer(event: int) -> steps.Watch:
    """Return a watcher that kills this process at the n-th event, counted from 0."""
    left = event

    def kill(_when: str, _step: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    return kill


def killed(work: Callable[[], object], event: int) -> bool:
    """Run the work in a process that is killed at the n-th event. Return False if it ended before."""
    if (child := os.fork()) == 0:
        try:
            steps.watch(killer(event))
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the process failed at or before event {event}"
    return status != 0


def expire(dataset: Path) -> None:
    """Make the leases in a dataset look like a minute after the death of their holders."""
    for lease in dataset.glob(".tidegate/*/*/lease/lease-*"):
        os.utime(lease, (0, 0))
