"""`rollout`: from the command line to the exit code."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType

from stacks.command import FAILED, STOPPED, CommandError, ExitStatus

from ..changes.compare import KEPT
from ..changes.report import report as changes_report
from ..changes.stack_change import StackChange, stack_change, verdict
from ..health import target_of
from ..kubectl import Kubectl
from ..live import live_objects
from ..preflight import lacks
from ..seen import CommandReport
from ..terminal import console, note
from . import report, worker
from .gate import HealthCheck, await_health, not_loaded, why_not_well
from .journal import History, Journal
from .prepare import Prepared, RolloutRequest, prepared, refuse_contradictions
from .runner import Runner, Show, Stop


def roll_out(request: RolloutRequest, outcome: ExitStatus, seen: CommandReport) -> None:
    """Roll an environment out over its data planes. Raise CommandError with a report if it stops early."""
    refuse_contradictions(request)
    history = History(request.journals / request.environment)
    with nullcontext(-1) if request.dry_run else history.locked() as lock:
        ready = prepared(request, history, seen)
        seen.steps, seen.stacks = ready.record.steps, [*ready.stacks.values()]
        console().print(report.plan_text(ready.record, ready.stacks), soft_wrap=True)
        # A rollback must not be stopped by prerequisites that the cluster lost meanwhile.
        keep_going = request.keep_going or ready.record.kind == "back"
        if request.dry_run:
            _print_changes(ready, seen, keep_going=keep_going)
            return
        journal = ready.journal or history.begin(ready.record, ready.texts)
        outcome.text = f"to continue rollout {journal.number} of {request.environment}, add --resume"
        _run(journal, ready, lock, keep_going=keep_going)


def _print_changes(ready: Prepared, seen: CommandReport, *, keep_going: bool) -> None:
    """Print what would change in each plane, by a dry run. Raise CommandError if a plane could not be applied."""
    every: dict[str, StackChange] = {}
    refused: list[str] = []
    for plane, rendered in ready.rendering.items():
        stack, name = ready.stacks[plane], rendered.stack
        context = stack.data_plane.context_name
        try:
            live = live_objects(context, [rendered])[name]
            ready.engine.check(stack, rendered)
            lacking = lacks(Kubectl(context), [(stack, rendered.objects)])[name]
        except CommandError as error:
            refused.append(f"{plane}: {error}")
            continue
        seen.lacks = {**seen.lacks, name: lacking}
        refused += [f"{plane}: {lack}" for lack in lacking if lack.hard and not keep_going]
        found = seen.guardrails.get(name, ())
        every[name] = stack_change(name, live.before or None, live.after, findings=found, known=found)
        refused += [f"{plane}: {words}" for words in live.refused]
        # Pulumi re-creates such objects, except protected datasets. With Helm, the API server refuses all of them.
        refused += [
            f"{plane}: {change.kind} {change.name} cannot be changed in place ({', '.join(change.immutable)})"
            for change in every[name].objects
            if change.verb == "replaced" and (ready.engine.name != "pulumi" or change.kind in KEPT)
        ]
    seen.changes = [*every.values()]
    seen.verdict = verdict(seen.changes)
    if text := changes_report({name: one.objects for name, one in every.items()}):
        console().print(text, soft_wrap=True)
    for plane, rendered in ready.rendering.items():
        if rendered.stack in every and not every[rendered.stack].objects:
            print(f"{plane}: nothing would change.")
    dry = "This was a dry run: nothing was changed."
    if refused:
        lines = "\n  ".join(refused)
        raise CommandError(f"The rollout would fail:\n  {lines}\n{dry}")
    note(dry)


def _run(journal: Journal, ready: Prepared, lock: int, *, keep_going: bool) -> None:
    stop = Stop()
    record = journal.record
    most = max(stack.environment.rollout.max_parallel for stack in ready.stacks.values())
    sources = ready.sources or dict.fromkeys(record.planes, journal)

    def look(plane: str) -> HealthCheck:
        stack = ready.stacks[plane]
        kubectl, target = Kubectl(stack.data_plane.context_name), target_of(ready.rendering[plane].objects)
        return HealthCheck(stack.platform.gate, kubectl, target, frozenset(record.planes[plane].not_loaded or ()))

    def bring_up(plane: str, show: Show) -> None:
        if record.planes[plane].not_loaded is None:
            now = look(plane)
            failed: list[str] = []
            try:
                failed, _ = not_loaded(now.kubectl, now.target)
            except CommandError as error:
                note(f"warning: {plane}: the gate expects every model to be loaded, because {error}")
            journal.note_not_loaded(plane, failed)
        read_from = str(sources[plane].definition_file)
        task = worker.Task(record.environment, plane, record.engine, record.definition, read_from, keep_going)
        seconds = ready.stacks[plane].environment.rollout.engine_timeout_seconds
        try:
            worker.bring_up(task, journal.log(plane), lock, seconds, stop.now, show)
        except worker.TooLong as error:
            now = look(plane)
            raise CommandError("\n  ".join([str(error), *why_not_well(now, now.lacking())])) from None

    def through_gate(plane: str, show: Show) -> None:
        check = look(plane)
        await_health(check, show, stop.now.wait)
        for why in check.blind[-1:]:
            note(f"warning: {plane}: the gate could not check the models: {why}")

    if ready.journal is not None:
        journal.note_outcome(None)
    with _signals(stop):
        ending = Runner(
            journal, bring_up, through_gate, report.Lines(), stop, most, keep_going=record.kind == "back"
        ).run()
    console().print(report.table(journal, ready.left))
    text = report.closing(journal)
    if ending != "succeeded":
        raise CommandError(text, STOPPED if ending == "stopped" else FAILED)
    print(text)


@contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Make the first Ctrl-C start no further plane, and the second one (or SIGTERM) interrupt the running planes."""

    def handle(number: int, _: FrameType | None) -> None:
        if number == signal.SIGTERM or stop.soon.is_set():
            note("interrupting the running planes …")
            stop.now.set()
        else:
            note("stopping: running planes are finished, but no other starts. Press Ctrl-C again to interrupt them.")
        stop.soon.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
