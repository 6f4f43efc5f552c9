"""Load: wrk from Debian, and a reader of event streams."""

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
    """A request that is repeated."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    ends: bytes = b""  # The end of a correct response.
    variants: int = 0  # The number of different heads, sent in turn, as clients' differ. 0: always the same head.


@dataclass(frozen=True)
class Measured:
    """Results of wrk."""

    requests: int
    per_second: float
    p50: float
    p99: float  # Both in seconds.


class LoadError(ProcessError):
    """Requests failed, so nothing was measured."""


def answer(where: str, call: Call) -> None:
    """Send a request once. Raises LoadError unless the response is correct."""
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
    """Send a request on 32 connections, each after its previous response. Raises LoadError."""
    wrk = debian_package("wrk")
    body = folder / "body"
    body.write_bytes(call.body)
    headers = [option for name, value in call.headers.items() for option in ("-H", f"{name}: {value}")]
    whole = max(1, round(seconds))  # wrk needs an integer.
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
    """Return the median seconds from a request to the first event of its response, one request after the other."""
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
