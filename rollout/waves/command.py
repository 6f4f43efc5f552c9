"""`rollout`: from the command line to the exit code."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

from stacks.command import FAILED, STOPPED, CommandError, Outcome

from ..contexts import context_of
from ..health import target_of
from ..kubectl import Kubectl
from ..terminal import console, note
from . import report, worker
from .dry_run import what_would_change
from .gate import Look, await_health, why_not_well
from .history import History, Past, Texts
from .journal import FILE, Journal
from .prepare import Prepared, Request, prepared, refuse_contradictions
from .runner import Runner, Show, Stop
from .watch import watching


def roll_out(request: Request, outcome: Outcome) -> None:
    """Roll an environment out over its data planes; raise CommandError with a report where it stops early."""
    refuse_contradictions(request)
    history = History(request.journals / request.environment)
    with nullcontext(-1) if request.dry_run else history.locked() as lock:
        ready = prepared(request, history)
        screen = console()
        screen.print(report.plan_text(ready.begin, ready.stacks), soft_wrap=True)
        if request.dry_run:
            _say_what_would_change(ready)
            return
        past = ready.past
        if past is None:
            past = history.begin(ready.begin, ready.texts or Texts({}, ""))
        sources = ready.sources or dict.fromkeys(ready.begin.planes, past)
        outcome.text = f"rollout {past.number} of {request.environment} can go on with RESUME=1"
        _run(past, ready, sources, lock)


def _say_what_would_change(ready: Prepared) -> None:
    """Say what a rollout would do; raise CommandError where it would not come to its end."""
    changes, refused = what_would_change(ready.stacks, ready.rendering, ready.engine)
    if changes:
        console().print(changes, soft_wrap=True)
    dry = "This was a dry run: nothing was changed."
    if refused:
        lines = "\n  ".join(refused)
        raise CommandError(f"The rollout would not come to its end:\n  {lines}\n{dry}")
    note(dry)


@dataclass(frozen=True)
class _Work:
    past: Past
    prepared: Prepared
    sources: Mapping[str, Past]
    lock: int
    stop: Stop

    def bring_up(self, plane: str, show: Show) -> None:
        begin, stack = self.prepared.begin, self.prepared.stacks[plane]
        task = worker.Task(
            begin.environment, plane, begin.engine, begin.definition, str(self.sources[plane].definition_file)
        )
        seconds = stack.environment.rollout.engine_timeout_seconds
        try:
            worker.bring_up(task, self.past.log(plane), self.lock, seconds, self.stop.now, show)
        except worker.TooLong as error:
            raise CommandError("\n  ".join([str(error), *why_not_well(self._look(plane))])) from None

    def await_health(self, plane: str, show: Show) -> None:
        await_health(self._look(plane), show, self.stop.now.wait)

    def _look(self, plane: str) -> Look:
        stack = self.prepared.stacks[plane]
        target = target_of(self.prepared.rendering[plane].objects)
        return Look(stack.platform.gate, Kubectl(context_of(stack.data_plane)), target)


def _run(past: Past, prepared: Prepared, sources: Mapping[str, Past], lock: int) -> None:
    journal = Journal(past.folder / FILE)
    stop = Stop()
    most = max(stack.environment.rollout.max_parallel for stack in prepared.stacks.values())
    try:
        if prepared.past is not None:
            journal.run("resumed")
        states = {plane: standing.state for plane, standing in journal.story.planes.items()}
        with _signals(stop), watching(states) as watch:
            work = _Work(past, prepared, sources, lock, stop)
            keep_going = prepared.begin.kind == "back"
            ending = Runner(journal, work, watch, stop, most, keep_going).run()
    finally:
        journal.close()
    console().print(report.table(past, journal.story, prepared.left))
    text = report.closing(past, journal.story)
    if ending == "succeeded":
        print(text)
    else:
        raise CommandError(text, STOPPED if ending == "stopped" else FAILED)


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Let the first Ctrl-C begin no further plane, and the second (or SIGTERM) interrupt those that are at work."""

    def asked(number: int, _: FrameType | None) -> None:
        if number == signal.SIGTERM or stop.asked.is_set():
            note("interrupting the planes that are at work …")
            stop.now.set()
        else:
            note("stopping: planes that are at work are finished, and no other is begun. Ctrl-C again interrupts them.")
        stop.asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
