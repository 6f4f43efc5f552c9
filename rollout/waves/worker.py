"""One process for each plane that is being applied: `python -m rollout.waves.worker`, and how it is started.

So each engine has its own log, and a hanging engine can be killed alone. A worker and its engine are a separate process
group, so that the rollout handles Ctrl-C. A worker ends with the rollout, however that ends: when the pipe to its
standard input breaks, it interrupts its group. It also holds the environment's lock while it runs.
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
_GRACE_SECONDS = 90.0  # How long an interrupted engine may take to end.
_LONGEST_MESSAGE = 4_000  # Characters of an error in the rollout's record and report.
_STOPPED = 130


class TooLong(CommandError):
    """An engine did not end in time. Only the cluster knows why."""


@dataclass(frozen=True)
class Task:
    """The work of a worker: one stack of a definition."""

    environment: str
    plane: str
    engine: str
    definition: str  # The file that the stack's configuration names.
    read_from: str  # The file to read: the copy that the rollout stores.
    keep_going: bool = False  # Even if the cluster lacks prerequisites.


def bring_up(
    task: Task, log: Path, lock: int, seconds: float, stop: threading.Event, show: Show, grace: float = _GRACE_SECONDS
) -> None:
    """Apply a stack in a separate process. Raise CommandError if it failed, Interrupted if it was stopped."""
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
    threading.Thread(target=_keep, args=(process.pid, seconds, stop, over, grace), daemon=True).start()
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
        raise TooLong(f"it was interrupted because it did not end within {seconds:g} s")
    message = failure.read_text("utf-8", "replace") if failure.exists() else ""
    raise CommandError(message or f"{last or 'it ended without output'} (exit code {code}: {escaped(str(log))})")


def _keep(group: int, seconds: float, stop: threading.Event, over: threading.Event, grace: float) -> None:
    """Interrupt a worker when it is stopped, or takes too long. Kill it if it does not end."""
    end = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < end:
        if over.wait(0.1):
            return
    _send(group, signal.SIGINT)
    if not over.wait(grace):
        _send(group, signal.SIGKILL)


def _send(group: int, number: signal.Signals) -> None:
    """Send a signal to a worker's process group, which includes its engine."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def main(arguments: list[str]) -> int:
    """Apply one stack. If that fails, write the error to the file that the rollout reads."""
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

    definition = read_definition(task.read_from).known_as(task.definition)
    stack = stacks_of(definition, task.environment)[task.plane]
    Kubectl(stack.data_plane.context_name).query_ahead()

    from .. import preflight
    from ..engines import Bundle, find_engine

    engine = find_engine(task.engine)
    [rendered] = engine.render([stack], definition)
    preflight.ensure_ready(stack.data_plane.context_name, [(stack, rendered.objects)], keep_going=task.keep_going)
    bundle = Bundle(stack, rendered, definition.lock, Path(task.definition), Path(task.read_from))
    if not engine.up(bundle, wait=False):
        print(f"Nothing changed: {stack.name} is as declared.")


def _end_with_the_rollout() -> None:
    """Interrupt the process group when the rollout is gone, and kill it if it does not end."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.killpg(0, signal.SIGINT)
    time.sleep(_GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
