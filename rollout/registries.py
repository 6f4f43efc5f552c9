"""Asks registries for digests, through crane."""

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab import tools
from stacks.command import CommandError
from stacks.problems import shortened

from .terminal import progress

SECONDS = 120
"""For one image."""
_AT_ONCE = 8
_MOST_BYTES = 1 << 16
_LONGEST_ERROR = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Answer:
    """What a registry said about one image: its digest, or why there is none."""

    digest: str | None
    error: str = ""


def ask_all(questions: Mapping[str, str], insecure: bool = False) -> dict[str, Answer]:
    """Ask for the digest of every reference, several at once; Ctrl-C ends the programs that ask."""
    try:
        crane = tools.path("crane")
    except tools.ToolError as error:
        raise CommandError(str(error)) from None
    asking = _Asking(crane, insecure)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        waiting = {pool.submit(asking.ask, reference): image for image, reference in questions.items()}
        try:
            found = {
                waiting[done]: done.result()
                for done in progress(as_completed(waiting), len(waiting), "images asked for")
            }
        except BaseException:
            asking.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {image: found[image] for image in questions}


class _Asking:
    def __init__(self, crane: Path, insecure: bool) -> None:
        self._command = [str(crane), "digest", *(["--insecure"] if insecure else [])]
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def ask(self, reference: str) -> Answer:
        with self._lock:
            if self._stopped:
                return Answer(None, "stopped")
            process = subprocess.Popen(
                [*self._command, reference],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            out, said = _said(process)
        except subprocess.TimeoutExpired:
            return Answer(None, f"no answer within {SECONDS} s")
        finally:
            with self._lock:
                self._running.discard(process)
            _end(process)
        digest = out.strip()
        if process.returncode == 0 and _DIGEST.fullmatch(digest):
            return Answer(digest)
        lines = [line for line in said.splitlines() if line.strip()]
        error = lines[-1].removeprefix("Error: ") if lines else f"crane said nothing ({digest or 'no digest'})"
        return Answer(None, shortened(error, _LONGEST_ERROR))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)


def _said(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Return the ends of what a program says on its two streams; raise TimeoutExpired when it does not end."""
    deadline = time.monotonic() + SECONDS
    said = {stream: bytearray() for stream in (process.stdout, process.stderr) if stream}
    with selectors.DefaultSelector() as selector:
        for stream in said:
            selector.register(stream, selectors.EVENT_READ, said[stream])
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, SECONDS)
            for key, _ in selector.select(left):
                data = os.read(key.fd, _MOST_BYTES)
                key.data.extend(data)
                del key.data[:-_MOST_BYTES]
                if not data:
                    selector.unregister(key.fileobj)
    process.wait(max(0.0, deadline - time.monotonic()))
    out, error = (text.decode("utf-8", "replace") for text in said.values())
    return out, error


def _end(process: subprocess.Popen[bytes]) -> None:
    _kill(process)
    with process:  # closes the pipes and waits
        pass


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with all that it has started, such as a helper that knows passwords."""
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:  # else its id may be another's by now
            os.killpg(process.pid, signal.SIGKILL)
