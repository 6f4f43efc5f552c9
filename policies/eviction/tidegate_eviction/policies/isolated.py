"""A policy of somebody else's runs in a process of its own: however it fails, and however long it takes, it holds up
nobody for longer than `ANSWER_SECONDS`, and for no more than a tenth of the time.

It is asked over a socket, and answers by places in the list that it was given: nothing that it does to its copies
matters. One that does not answer in time is ended and started anew; while it rests, it is not asked.
"""

import json
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from . import registry
from .policy import Candidate, Policy, PolicyError, reason, take

START_SECONDS: Final = 10.0  # How long its first start may take, with all that it imports.
ANSWER_SECONDS: Final = 0.25  # How long one answer may take, and all of them while it is asked again and again.
SHARE: Final = 0.1  # Of the time, how much all answers may take in the long run.
REST_SECONDS, REST_MOST_SECONDS = 2.5, 60.0
"""How long it is not asked after a failure; twice as long after the next one, and so on."""
MEMORY_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
REAP_SECONDS: Final = 0.1  # How long the end of a process that was killed is waited for; else it is seen to later.
MOST_LATE = 2  # Killed processes that have not ended: where there are so many, the policy is not asked.
_late: list[subprocess.Popen[bytes]] = []
_SIZE = 8  # Bytes that say how long a message is.


def find(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> Policy:
    """Return a policy by its name, as `registry.find` does; one that a package brings runs in a process of its own."""
    known = registry.known_here(name, settings)
    if known is None:
        registry.entry_point(name)
        known = _started(name, tuple(sorted(settings.items())))
    return known


@lru_cache(maxsize=2)
def _started(name: str, settings: tuple[tuple[str, str], ...]) -> Policy:
    process = PolicyProcess(name, dict(settings))
    about = process.start()
    return Policy(name, about["sentence"], process.choose, about["idleLimits"], about["evicts"])


class PolicyProcess:
    """The process of one policy, as its asker sees it."""

    def __init__(self, name: str, settings: Mapping[str, str]) -> None:
        self._made_of = json.dumps({"name": name, "settings": dict(settings)}).encode()
        self._begun = False  # It has told that it can be asked.
        self._credit, self._credited_at = ANSWER_SECONDS, monotonic()  # Seconds that answers may take.
        self._failures = 0  # In a row.
        self._rests_until = 0.0

    def start(self) -> Any:
        """Start it, and return what it tells of the policy; ValueError, in one sentence, if it cannot be used."""
        self._spawn()
        try:
            return self._greeting(START_SECONDS)
        except PolicyError as error:
            self._end()
            raise ValueError(str(error)) from None

    def choose(self, candidates: Sequence[Candidate], needed_bytes: int, now: float) -> list[Candidate]:
        """Return what it chooses; the least recently used while it rests or starts. PolicyError if it fails: it rests
        then."""
        asked = monotonic()
        _late[:] = [each for each in _late if each.poll() is None]
        if len(_late) >= MOST_LATE or asked < self._rests_until or not (self._begun or self._can_begin(asked)):
            return take(registry.least_recently_used(candidates), needed_bytes)
        self._credit = min(ANSWER_SECONDS, self._credit + SHARE * (asked - self._credited_at))
        try:
            if not self._begun:
                self._greeting(ANSWER_SECONDS)
            answer = self._exchange(pickle.dumps((candidates, needed_bytes, now)), len(candidates), ANSWER_SECONDS)
            self._credit -= monotonic() - asked
            if self._credit < 0:
                raise PolicyError(f"its answers take more than {SHARE:.0%} of the time")
            chosen = [candidates[place] for place in answer["chosen"]]
        except PolicyError as error:
            rest = min(REST_MOST_SECONDS, REST_SECONDS * 2**self._failures)
            self._failures += 1
            self._credited_at = monotonic()
            self._rests_until = self._credited_at + rest
            raise PolicyError(f"{error}; it is asked again in {rest:g} s") from None
        self._credited_at, self._failures = monotonic(), 0
        return chosen

    def _spawn(self) -> None:
        self._link, theirs = socket.socketpair()
        self._begun, self._spawned_at = False, monotonic()
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", __name__, str(descriptor)]
            finds = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # what this process finds
            child = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL, env=finds)
        self.pid, self._end = child.pid, weakref.finalize(self, _end, child, self._link)
        _send(self._link, self._made_of)

    def _can_begin(self, now: float) -> bool:
        """Tell whether its greeting is there, or will never be."""
        here = select.poll()
        here.register(self._link, select.POLLIN)
        return bool(here.poll(0)) or now > self._spawned_at + START_SECONDS

    def _greeting(self, seconds: float) -> Any:
        about = self._exchange(None, 0, seconds)
        self._begun = True
        return about

    def _exchange(self, message: bytes | None, most: int, seconds: float) -> Any:
        """Send a message, if there is one, and return the answer, with no more numbers than `most`; one that comes too
        late, or not at all, costs the process its life."""
        until = monotonic() + seconds
        try:
            if message is not None:
                self._link.settimeout(seconds)
                _send(self._link, message)
            answer = json.loads(_receive(self._link, until, 4096 + 8 * most))
        except TimeoutError:
            why = f"it gave no answer within {seconds:g} s"
        except (OSError, ValueError):
            why = "its process ended"
        else:
            if "failed" in answer:
                raise PolicyError(answer["failed"])
            return answer
        self._end()
        self._spawn()
        raise PolicyError(why)


def _end(child: subprocess.Popen[bytes], link: socket.socket) -> None:
    link.close()
    child.kill()
    try:
        child.wait(REAP_SECONDS)
    except subprocess.TimeoutExpired:  # it hangs in the kernel, on a volume perhaps
        _late.append(child)


def _send(link: socket.socket, message: bytes) -> None:
    link.sendall(len(message).to_bytes(_SIZE) + message)


def _receive(link: socket.socket, until: float | None = None, most: int | None = None) -> bytes:
    """Return a message; TimeoutError if it is not there in time, ConnectionError if the other side has gone."""
    size = int.from_bytes(_bytes(link, _SIZE, until))
    if most is not None and size > most:
        raise ValueError("the message is too long")
    return _bytes(link, size, until)


def _bytes(link: socket.socket, number: int, until: float | None) -> bytes:
    read = bytearray()
    while len(read) < number:
        if until is not None:
            link.settimeout(max(1e-3, until - monotonic()))
        part = link.recv(min(1 << 16, number - len(read)))
        if not part:
            raise ConnectionError("nobody is there")
        read += part
        if until is not None and monotonic() > until:
            raise TimeoutError
    return bytes(read)


def _serve(link: socket.socket) -> None:
    """Be the process: tell of the policy, and answer until nobody asks any more."""
    made_of = json.loads(_receive(link))
    os.dup2(2, 1)  # What it prints goes to the log.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Its asker's to hear.
    with suppress(OSError, ValueError):  # No limit, or no such file
        most = int(MEMORY_LIMIT.read_text()) // 2
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    _alarm(START_SECONDS)
    try:
        policy = registry.find(made_of["name"], made_of["settings"])
    except ValueError as error:
        _send(link, json.dumps({"failed": str(error)}).encode())
        return
    about = {"sentence": str(policy.sentence), "idleLimits": bool(policy.idle_limits), "evicts": bool(policy.evicts)}
    _send(link, json.dumps(about).encode())
    with suppress(ConnectionError):
        while True:
            _alarm(0)
            message = _receive(link)
            _alarm(ANSWER_SECONDS)
            _send(link, json.dumps(_answer(policy, *pickle.loads(message))).encode())


def _answer(policy: Policy, candidates: Sequence[Candidate], needed_bytes: int, now: float) -> dict[str, Any]:
    place = {id(candidate): number for number, candidate in enumerate(candidates)}
    try:
        return {"chosen": sorted({place[id(each)] for each in policy.choose(candidates, needed_bytes, now)})}
    except PolicyError as error:
        return {"failed": reason(error)}


def _alarm(seconds: float) -> None:
    """End this process in a while, whatever it does then: its asker may be gone."""
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
