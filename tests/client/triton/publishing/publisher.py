"""A publisher as a process of its own: `python -m tests.client.triton.publishing.publisher JSON`.

The JSON has `where`, `model`, `release`, `number` and `served`; the step `after` which it is killed (none: it ends);
and `expiry`, the seconds after which a lease is nobody's. Release 1 keeps the calls.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tidegate.publishing import steps
from tidegate.publishing.lease import Lease

from .entries import entry, publish

ROOT = Path(__file__).resolve().parents[4]


def run(how: dict[str, Any], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run one to its end, or to its death; `variables` are added to its environment."""
    environment = os.environ | variables | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__, json.dumps(how)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=60)


def main(how: dict[str, Any]) -> None:
    def kill(when: str, step: str) -> None:
        if (when, step) == ("after", how.get("after")):
            os.kill(os.getpid(), signal.SIGKILL)

    Lease.EXPIRY_SECONDS, Lease.BEAT_SECONDS = how["expiry"], how["expiry"] / 4
    steps.watch(kill)
    publish(how["where"], entry(how["release"], how["model"]), how["number"], how["served"], prod=1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
