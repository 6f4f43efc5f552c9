"""Asks registries for digests, through crane."""

import re
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import tools

from .errors import RolloutError
from .terminal import progress

SECONDS = 120
"""For one image."""
_AT_ONCE = 8
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
        raise RolloutError(str(error)) from None
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
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def ask(self, reference: str) -> Answer:
        with self._lock:
            if self._stopped:
                return Answer(None, "stopped")
            process = subprocess.Popen(
                [*self._command, reference],
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._running.add(process)
        try:
            out, said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Answer(None, f"no answer within {SECONDS} s")
        finally:
            with self._lock:
                self._running.discard(process)
        digest = out.strip()
        if process.returncode == 0 and _DIGEST.fullmatch(digest):
            return Answer(digest)
        lines = [line for line in said.splitlines() if line.strip()]
        return Answer(
            None, lines[-1].removeprefix("Error: ") if lines else f"crane said nothing ({digest or 'no digest'})"
        )

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()
