"""Processes that serve on loopback: started, waited for, and always ended."""

import http.client
import itertools
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from rollout.tools.running import ToolError, leash, tail

Had = TypeVar("Had")
ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02
_NOT_OF_CONNECTIONS = 10_000, 32_768  # Below the range of Linux for connections (ip_local_port_range).
_PORTS_OF_A_PROCESS = 256


class CannotBeHadError(Exception):
    """A program cannot run on this machine, such as a wheel for another platform. The text names it and the reason."""


def had(what: str, get: Callable[..., Had], *names: str) -> Had:
    """Return the result of `get(*names)`. Raises CannotBeHadError with `what` for a ToolError."""
    try:
        return get(*names)
    except ToolError as error:
        raise CannotBeHadError(f"{what}: {error}") from None


class ProcessError(Exception):
    """A process failed. The text has the end of its log."""


@dataclass(frozen=True)
class Process:
    """A running process, the leader of a new process group."""

    name: str
    popen: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def processor_seconds(self) -> float:
        """Return the CPU seconds of its process group."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It has just ended.
            if int(fields[2]) == self.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """Raise ProcessError if it has ended."""
        if (status := self.popen.poll()) is not None:
            raise ProcessError(f"{self.name} ended with {status}:\n{tail(self.log, 25)}")

    def wait_until(self, ready: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        """Wait until it is ready. Raises ProcessError if it ends before, or takes too long."""
        end = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > end:
                raise ProcessError(f"{self.name} is not ready after {seconds:.0f} s:\n{tail(self.log, 25)}")
            time.sleep(_POLL_SECONDS)

    def announced_ports(self) -> dict[str, int]:
        """Wait for its line `ready <side>=<port> …`, which it prints with free ports, and return the ports."""
        self.wait_until(lambda: self._ready_line() is not None)
        return {
            side: int(port) for side, _, port in (word.partition("=") for word in (self._ready_line() or "").split())
        }

    def _ready_line(self) -> str | None:
        found = re.search(r"^ready (.*)\n", self.log.read_text("utf-8"), re.MULTILINE)
        return found and found[1]

    def stop(self) -> int:
        """End its process group, by force after a while. Return its status."""
        was_waited_for = self.popen.returncode is not None
        try:
            if self.popen.poll() is None:
                self.popen.terminate()
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            # Kill its remaining children. The group keeps its id, unless it was given to another process long
            # afterwards.
            if not (was_waited_for and Path(f"/proc/{self.pid}").exists()):
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.popen.wait()


class Parts:
    """Processes that run together: `parts` has them by name."""

    @property
    def parts(self) -> dict[str, Process]:
        raise NotImplementedError

    def check(self) -> None:
        """Raise ProcessError if one of them has ended."""
        for process in self.parts.values():
            process.check()


@dataclass(frozen=True)
class Server:
    """A process that serves HTTP and gRPC."""

    process: Process
    http_port: int
    grpc_port: int
    host: str = field(default=HOST, kw_only=True)

    @property
    def http(self) -> str:
        return f"{self.host}:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"{self.host}:{self.grpc_port}"


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    core: int | None = None,
    folder: Path | None = None,
    kill: bool = False,
) -> Iterator[Process]:
    """Run a command with its output in a log file, optionally on one core, until the block ends. It also ends with the
    thread that started it. With `kill` it is killed immediately."""
    with log.open("wb") as output, pinned(core):
        popen = subprocess.Popen(
            [*leash("KILL" if kill else "TERM"), *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    process = Process(name, popen, log)
    try:
        yield process
    finally:
        if kill:
            popen.kill()
        process.stop()


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Run this thread, and the processes that it starts meanwhile, on one core only."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_ports(number: int) -> list[int]:
    """Return free ports of loopback below the range of Linux for connections. Until a server listens there, another
    process could choose them, too. So each process chooses from a separate range."""
    return [*itertools.islice(filter(_is_free, _own_ports(os.getpid())), number)]


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


@cache
def _own_ports(process: int) -> Iterator[int]:
    """Return the ports of a process in a cycle. Processes with neighbouring ids have other ports."""
    first, last = _NOT_OF_CONNECTIONS
    first += process % ((last - first) // _PORTS_OF_A_PROCESS) * _PORTS_OF_A_PROCESS
    return itertools.cycle(range(first, first + _PORTS_OF_A_PROCESS))


def listens(port: int) -> bool:
    """Return whether a port of loopback accepts connections."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str, host: str = HOST) -> bool:
    """Return whether a server on loopback returns 200 for a GET."""
    asking = http.client.HTTPConnection(host, port, timeout=5)
    try:
        asking.request("GET", path)
        return asking.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def set_aside(log: Path) -> Path:
    """Rename the log of a process that has ended, to `triton.1.log`, so that the next process can use its name."""
    names = (log.with_suffix(f".{number}.log") for number in itertools.count(1))
    aside = next(each for each in names if not each.exists())
    with suppress(FileNotFoundError):  # It was removed.
        log.rename(aside)
    return aside


def python_variables(*packages: str) -> dict[str, str]:
    """Return the variables of a Python process with these packages that writes its log without buffering."""
    paths = [*(ROOT / package for package in packages), ROOT]
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}


def replace_file(file: Path, text: str) -> None:
    """Replace a file atomically, as a ConfigMap's files are: a reader sees the old one or the new one."""
    new = file.parent.parent / f".{file.parent.name}-{file.name}.new"  # Not in the watched directory.
    new.write_text(text, "utf-8")
    new.replace(file)
