"""Load: wrk, which Debian has, and a reader of event streams."""

import http.client
import json
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.local_plane.process import ProcessError, pinned
from tests.proxy.rigs.peers import debian_package

SCRIPT = Path(__file__).with_name("load.lua")


@dataclass(frozen=True)
class Call:
    """A request that is sent again and again."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    ends: bytes = b""  # How the answer ends, if it is the right one.
    variants: int = 0  # Heads that differ as clients' do, sent in turn; 0 sends the same head again and again.


@dataclass(frozen=True)
class Measured:
    """What wrk measured."""

    requests: int
    per_second: float
    p50: float
    p99: float  # Seconds, as the one before.


class LoadError(ProcessError):
    """Requests that were not answered as they should have been: nothing was measured."""


def answer(where: str, call: Call) -> None:
    """Send a request once; raises LoadError unless the right answer comes."""
    asking = http.client.HTTPConnection(where, timeout=30)
    try:
        asking.request("POST", call.path, call.body, dict(call.headers))
        found = asking.getresponse()
        body = found.read()
    except (OSError, http.client.HTTPException) as error:
        raise LoadError(f"{where}{call.path}: {error}") from None
    finally:
        asking.close()
    if found.status != 200 or not body.endswith(call.ends):
        raise LoadError(f"{where}{call.path} answers {found.status}: {body[-500:]!r}")


def load(where: str, call: Call, seconds: float, core: int, folder: Path) -> Measured:
    """Send a request on 32 connections, each as soon as the one before is answered; raises LoadError."""
    wrk = debian_package("wrk")
    body = folder / "body"
    body.write_bytes(call.body)
    headers = [option for name, value in call.headers.items() for option in ("-H", f"{name}: {value}")]
    whole = max(1, round(seconds))  # as wrk wants it
    command = [wrk.path("wrk"), "-t1", "-c32", f"-d{whole}s", "--timeout", "20s", "-s", SCRIPT, *headers]
    with pinned(core):
        done = subprocess.run(
            [*map(str, command), f"http://{where}{call.path}", "--", str(body), str(call.variants)],
            capture_output=True,
            text=True,
            env=wrk.environment(),
            timeout=seconds + 60,
        )
    if done.returncode:
        raise LoadError(f"wrk ended with {done.returncode}: {done.stderr or done.stdout}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["errors"] or not found["requests"]:
        raise LoadError(f"{where}{call.path}: {found['errors']} of {found['requests']} requests failed under load")
    return Measured(found["requests"], found["requests"] / found["seconds"], found["p50"] / 1e6, found["p99"] / 1e6)


def first_event(where: str, call: Call, times: int, core: int) -> float:
    """Return the median seconds from a request to the first event of its answer, one request after the other."""
    seconds = []
    with pinned(core):
        asking = http.client.HTTPConnection(where, timeout=30)
        for _ in range(times):
            begin = time.perf_counter()
            asking.request("POST", call.path, call.body, dict(call.headers))
            found = asking.getresponse()
            line = found.readline()
            seconds.append(time.perf_counter() - begin)
            if found.status != 200 or not line.startswith(b"data:") or b"error" in line:
                raise LoadError(f"{where}{call.path} answers {found.status}: {line[:500]!r}")
            found.read()
        asking.close()
    return statistics.median(seconds)
