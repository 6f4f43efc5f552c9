"""A publisher as a process of its own: `python -m tests.client.triton.publishing.publisher JSON`.

The JSON has `where`, `release`, `number`, `served` and `aliases`; `event`, at which it is killed, counted from 0 (none:
it ends); and `expiry`, the seconds after which a lease is nobody's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tidegate.publishing import steps
from tidegate.publishing.lease import Lease

from .entries import entry, publish
from .killing import killer

ROOT = Path(__file__).resolve().parents[4]


def run(said: dict[str, Any], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run one to its end, or to its death; `variables` are added to its environment."""
    environment = os.environ | variables | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__, json.dumps(said)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment, timeout=60)


def main(said: dict[str, Any]) -> None:
    if expiry := said.get("expiry"):
        Lease.EXPIRY_SECONDS, Lease.BEAT_SECONDS = expiry, expiry / 4
    if (event := said.get("event")) is not None:
        steps.watch(killer(event))
    publish(said["where"], entry(said["release"]), said["number"], said["served"], **said["aliases"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
