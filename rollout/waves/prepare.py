"""Three ways to start: a new rollout, a resumed one, a rollback. Changes nothing in a cluster."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import DefinitionError, advisory_text, escaped, listed
from stacks.stack import Definition, Stack
from stacks.validate import read_definition

from ..contexts import refuse_tags
from ..engines import Engine, find_engine
from ..guardrails import enforce, findings
from ..render import Rendered
from ..seen import CommandReport
from ..terminal import note
from .journal import FILE, History, Journal, RolloutRecord, now, texts_of
from .plan import backwards, plan_of, stacks_of

_UNTOUCHED = "no plane was touched"


@dataclass(frozen=True)
class RolloutRequest:
    """The command line."""

    definition: Path
    environment: str
    engine: str | None
    dry_run: bool
    resume: bool
    back: bool
    journals: Path
    keep_going: bool = False  # Even if clusters lack prerequisites.


@dataclass(frozen=True)
class Prepared:
    """A rollout that can start or continue. Everything that needs no change of a plane is checked."""

    record: RolloutRecord
    engine: Engine
    stacks: Mapping[str, Stack]
    rendering: Mapping[str, Rendered]
    sources: Mapping[str, Journal] = field(default_factory=dict)
    """The rollout whose stored texts each plane is applied from. Empty for a new one, which stores its own."""
    texts: Mapping[str, bytes] = field(default_factory=dict)  # Texts that a new rollout stores.
    journal: Journal | None = None  # The rollout to resume. None for a new one.
    left: tuple[str, ...] = ()  # Planes that cannot be rolled back, because no earlier rollout of them succeeded.


def refuse_contradictions(request: RolloutRequest) -> None:
    """Raise CommandError for contradicting options, before any directory is created."""
    if request.resume and request.back:
        raise CommandError("Remove --resume or --back: one continues a rollout, the other reverts it.", WRONG_INPUT)
    kept = request.resume or request.back
    if not kept or not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", request.environment):
        stacks_of(read_definition(request.definition), request.environment)


def prepared(request: RolloutRequest, history: History, seen: CommandReport) -> Prepared:
    """Return the prepared rollout. Raise CommandError or DefinitionError if it cannot start."""
    last = next(reversed(history.all()), None)
    if last is not None and Path(last.record.definition).resolve() != request.definition.resolve():
        holds = f"{escaped(str(history.folder))} contains the rollouts of {escaped(last.record.definition)}"
        do = "Set that definition, or move the directory away"
        raise CommandError(f"{holds}, not of {escaped(str(request.definition))}.\n{do}.")
    if request.resume or (request.back and last and last.record.kind == "back" and last.record.outcome != "succeeded"):
        return _resumed(request, history, last, seen)
    return _rollback(request, history, last, seen) if request.back else _new(request, history, last, seen)


def _new(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    texts = texts_of(request.definition)
    definition = seen.definition = read_definition(request.definition)
    if texts_of(request.definition) != texts:
        raise CommandError(f"{escaped(definition.file)} changed while it was being read. Run this again.")
    every = stacks_of(definition, request.environment)
    steps = plan_of(list(every.values()))
    stacks = {plane: every[plane] for step in steps for plane in step.planes}
    refuse_tags(definition, list(stacks.values()))
    engine = find_engine(request.engine)
    rendering = dict(zip(stacks, engine.render([*stacks.values()], definition), strict=True))
    seen.guardrails = findings(rendering.values())
    guarded = enforce(seen.guardrails, _UNTOUCHED)
    for text in (advisory_text(definition.advisories), guarded):
        if text:
            note(text)
    if last is not None and last.record.outcome != "succeeded" and not request.dry_run:
        note(f"Rollout {last.number} did not succeed. This is a new one.")
    record = RolloutRecord(
        began_at=now(),
        kind="forward",
        environment=request.environment,
        definition=str(request.definition),
        engine=engine.name,
        steps=steps,
        good={plane: number for plane in stacks if (number := history.good(plane)) is not None},
    )
    return Prepared(record, engine, stacks, rendering, texts=texts)


def _resumed(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    last = _require_last(request, last, "continue")
    record = last.record
    if record.outcome == "succeeded":
        raise CommandError(f"There is nothing to continue: rollout {last.number} of {record.environment} succeeded.")
    engine = _same_engine(request, record)
    back = record.kind == "back"
    sources = {plane: history.numbered(record.good[plane]) if back else last for plane in record.planes}
    stacks, rendering = _of_stored_texts(request.environment, sources, engine, seen, check=not back)
    note(f"Continuing rollout {last.number} of {record.environment}, which started at {record.began_at}.")
    unedited = back
    with suppress(OSError):
        unedited = unedited or texts_of(request.definition) == texts_of(last.definition_file)
    if not unedited:
        texts = "this rollout uses the earlier texts.\nTo use the new ones, start a new rollout without --resume."
        note(f"warning: {escaped(str(request.definition))} or images.lock was edited since, but {texts}")
    return Prepared(record, engine, stacks, rendering, sources, journal=last)


def _rollback(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    last = _require_last(request, last, "roll back")
    record = last.record
    if record.kind == "back":
        took = f"rollout {last.number} of {record.environment} has already rolled back rollout {record.takes_back}"
        raise CommandError(f"There is nothing to roll back: {took}.")
    touched = record.touched
    able = [plane for plane in touched if plane in record.good]
    if not touched:
        raise CommandError(f"There is nothing to roll back: rollout {last.number} touched no plane.")
    if not able:
        do = "Check out an older definition from version control, and run `tidegate rollout` with it"
        none = f"no earlier rollout of {', '.join(touched)} succeeded"
        raise CommandError(f"There is nothing to return to: {none}.\n{do}.")
    engine = _same_engine(request, record)
    sources = {plane: history.numbered(record.good[plane]) for plane in able}
    stacks, rendering = _of_stored_texts(request.environment, sources, engine, seen, check=False)
    new = RolloutRecord(
        began_at=now(),
        kind="back",
        environment=request.environment,
        definition=record.definition,
        engine=engine.name,
        steps=backwards(record.steps, able),
        good={plane: record.good[plane] for plane in able},
        takes_back=last.number,
    )
    left = tuple(plane for plane in touched if plane not in able)
    return Prepared(new, engine, stacks, rendering, sources, left=left)


def _of_stored_texts(
    environment: str, sources: Mapping[str, Journal], engine: Engine, seen: CommandReport, *, check: bool
) -> tuple[dict[str, Stack], dict[str, Rendered]]:
    """Read and render the stored texts of each plane. With `check`, the rules that may stop a rollout apply too."""
    stacks: dict[str, Stack] = {}
    rendering: dict[str, Rendered] = {}
    read: dict[int, Definition] = {}
    for plane, journal in sources.items():
        number = journal.number
        try:
            definition = read[number] = read.get(number) or journal.definition()
        except DefinitionError as error:
            raise CommandError(f"this version cannot use the definition of rollout {number}:\n{error}") from None
        every = stacks_of(definition, environment)
        if journal.record.environment != environment or plane not in every:
            raise journal.damaged()
        stacks[plane] = every[plane]
        [rendering[plane]] = engine.render([every[plane]], definition)
    for definition in read.values() if check else ():  # only one, because a resumed rollout has one set of texts
        refuse_tags(definition, list(stacks.values()))
        seen.guardrails = findings(rendering.values())
        if text := enforce(seen.guardrails, _UNTOUCHED):
            note(text)
    return stacks, rendering


def _require_last(request: RolloutRequest, last: Journal | None, what: str) -> Journal:
    if last is None:
        folders = {path.parent.parent.name for path in request.journals.glob(f"*/*/{FILE}")}
        others = f" There are rollouts of: {listed(sorted(folders))}." if folders else ""
        where = escaped(str(request.journals))
        raise CommandError(f"There is no rollout of {request.environment} to {what} in {where}.{others}")
    return last


def _same_engine(request: RolloutRequest, record: RolloutRecord) -> Engine:
    if request.engine not in (None, record.engine):
        begun = f"The rollout started with {record.engine}, and must continue or roll back with it"
        raise CommandError(f"{begun}. Remove --engine.", WRONG_INPUT)
    return find_engine(record.engine)
