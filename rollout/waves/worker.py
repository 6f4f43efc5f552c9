"""One process for each plane that is being brought up: `python -m rollout.waves.worker`, and how it is started.

What an engine prints then goes to a log of its own; a hanging engine can be ended without the others; and Ctrl-C is
the rollout's to hand on, because a worker and its engine are a process group of their own. A worker ends with the
rollout, however that ends: its standard input is a pipe from there, and when that breaks, it interrupts its group. It
also holds the environment's lock for as long as it lives.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stacks.command import CommandError
from stacks.problems import escaped, shortened

from .. import processes
from .runner import Interrupted, Show

ROOT = Path(__file__).resolve().parents[2]
_GRACE_SECONDS = 90.0  # How long an engine may take to end what it has begun, once it is interrupted.
_LONGEST_MESSAGE = 4_000  # Characters of a failure: it stands in the rollout's record and report.
_STOPPED = 130


class TooLong(CommandError):
    """An engine was not done in time; only the cluster knows why."""


@dataclass(frozen=True)
class Task:
    """What a worker does: bring up one stack of a definition."""

    environment: str
    plane: str
    engine: str
    definition: str  # The file that the stack is known to come from.
    read_from: str  # The file that is read: the text that the rollout keeps.
    keep_going: bool = False  # Whatever the cluster lacks.


def bring_up(task: Task, log: Path, lock: int, seconds: float, stop: threading.Event, show: Show) -> None:
    """Bring a stack up in a process of its own; raise CommandError when it failed, Interrupted when it was stopped."""
    log.parent.mkdir(parents=True, exist_ok=True)
    failure = log.with_suffix(".failure")
    failure.unlink(missing_ok=True)
    paths = [str(ROOT), str(ROOT / "contracts"), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = processes.started(
        [sys.executable, "-m", "rollout.waves.worker", json.dumps(asdict(task)), str(failure.resolve())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        pass_fds=(lock,),
        start_new_session=True,
    )
    over, last = threading.Event(), ""
    threading.Thread(target=_keep, args=(process.pid, seconds, stop, over), daemon=True).start()
    try:
        with log.open("a", encoding="utf-8", errors="replace") as file:
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                if text := escaped(shortened(line.strip(), 300)):
                    last = text
                    show(text)
        code = process.wait()
    finally:
        over.set()
        if process.poll() is None:
            _send(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
    if code == 0:
        return
    if stop.is_set():
        raise Interrupted
    if code in (_STOPPED, -signal.SIGINT, -signal.SIGKILL):
        raise TooLong(f"it was interrupted: it was not done within {seconds:g} s")
    message = failure.read_text("utf-8", "replace") if failure.exists() else ""
    raise CommandError(message or f"{last or 'it ended without a word'} (exit code {code}; {escaped(str(log))})")


def _keep(group: int, seconds: float, stop: threading.Event, over: threading.Event) -> None:
    """Interrupt a worker when it is stopped, or takes too long; end it when it does not end by itself."""
    end = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < end:
        if over.wait(0.1):
            return
    _send(group, signal.SIGINT)
    if not over.wait(_GRACE_SECONDS):
        _send(group, signal.SIGKILL)


def _send(group: int, number: signal.Signals) -> None:
    """Send a signal to every process of a worker's group, and so to its engine too."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


# ---- in the worker ----


def main(arguments: list[str]) -> int:
    """Bring one stack up; the reason, when it fails, goes to the file that the rollout reads."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_the_rollout, daemon=True).start()
    task = Task(**json.loads(arguments[0]))
    try:
        _up(task)
    except CommandError as error:
        print(error, flush=True)
        Path(arguments[1]).write_text(shortened(str(error), _LONGEST_MESSAGE), "utf-8", "replace")
        return error.code
    except KeyboardInterrupt:
        return _STOPPED
    return 0


def _up(task: Task) -> None:
    from stacks.validate import read_definition

    from ..kubectl import Kubectl
    from .plan import stacks_of

    read_from = Path(task.read_from)
    definition = read_definition(read_from)
    stack = stacks_of(definition, task.environment)[task.plane]
    Kubectl(stack.data_plane.context_name).ask_ahead()

    from .. import preflight
    from ..engines import Bundle, find_engine

    engine = find_engine(task.engine)
    [rendered] = engine.render([stack], definition)
    preflight.ensure_ready(stack.data_plane.context_name, [(stack, rendered.objects)], keep_going=task.keep_going)
    bundle = Bundle(stack, rendered, definition.lock, Path(task.definition), read_from)
    if not engine.up(bundle, wait=False):
        print(f"Nothing changed: {stack.name} is as declared.")


def _end_with_the_rollout() -> None:
    """Interrupt the whole group once the rollout is gone, and end it when it does not end by itself."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.killpg(0, signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
