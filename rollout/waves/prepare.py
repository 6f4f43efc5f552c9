"""Three ways to begin: a new rollout, one that goes on, one that takes another back. Nothing is touched here."""

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
    """What the command line says."""

    definition: Path
    environment: str
    engine: str | None
    dry_run: bool
    resume: bool
    back: bool
    journals: Path
    keep_going: bool = False  # Whatever clusters lack.


@dataclass(frozen=True)
class Prepared:
    """A rollout that can begin, or go on: everything that can be checked without touching a plane is checked."""

    record: RolloutRecord
    engine: Engine
    stacks: Mapping[str, Stack]
    rendering: Mapping[str, Rendered]
    sources: Mapping[str, Journal] = field(default_factory=dict)
    """The rollout whose kept texts each plane is brought up from; empty for a new one, which keeps its own."""
    texts: Mapping[str, bytes] = field(default_factory=dict)  # What a new rollout keeps.
    journal: Journal | None = None  # The rollout that goes on; None for a new one.
    left: tuple[str, ...] = ()  # Planes that cannot be taken back, because no earlier rollout of them succeeded.


def refuse_contradictions(request: RolloutRequest) -> None:
    """Raise CommandError for settings that cannot stand together, before any folder is made after them."""
    if request.resume and request.back:
        raise CommandError(
            "--resume and --back cannot stand together: the one goes on, the other takes back.", WRONG_INPUT
        )
    kept = request.resume or request.back
    if not kept or not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", request.environment):
        stacks_of(read_definition(request.definition), request.environment)


def prepared(request: RolloutRequest, history: History, seen: CommandReport) -> Prepared:
    """Return what is to be done; raise CommandError or DefinitionError when it cannot be."""
    last = next(reversed(history.all()), None)
    if last is not None and Path(last.record.definition).resolve() != request.definition.resolve():
        holds = f"{escaped(str(history.folder))} holds the rollouts of {escaped(last.record.definition)}"
        do = "Name that definition, or move the folder away"
        raise CommandError(f"{holds}, and not of {escaped(str(request.definition))}.\n{do}.")
    if request.resume or (request.back and last and last.record.kind == "back" and last.record.outcome != "succeeded"):
        return _going_on(request, history, last, seen)
    return _taking_back(request, history, last, seen) if request.back else _new(request, history, last, seen)


def _new(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    texts = texts_of(request.definition)
    definition = seen.definition = read_definition(request.definition)
    if texts_of(request.definition) != texts:
        raise CommandError(f"{escaped(definition.file)} was written while it was being read; run this again.")
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
        note(f"Rollout {last.number} did not succeed; this one begins anew.")
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


def _going_on(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    last = _must_be_there(request, last, "go on with")
    record = last.record
    if record.outcome == "succeeded":
        raise CommandError(f"There is nothing to go on with: rollout {last.number} of {record.environment} succeeded.")
    engine = _same_engine(request, record)
    back = record.kind == "back"
    sources = {plane: history.numbered(record.good[plane]) if back else last for plane in record.planes}
    stacks, rendering = _of_kept_texts(request.environment, sources, engine, seen, check=not back)
    note(f"Rollout {last.number} of {record.environment}, begun at {record.began_at}, goes on.")
    unedited = back
    with suppress(OSError):
        unedited = unedited or texts_of(request.definition) == texts_of(last.definition_file)
    if not unedited:
        texts = "it goes on with the texts that it began with.\nFor the new ones begin a new rollout, without --resume."
        note(f"{escaped(str(request.definition))} or images.lock was edited since; {texts}")
    return Prepared(record, engine, stacks, rendering, sources, journal=last)


def _taking_back(request: RolloutRequest, history: History, last: Journal | None, seen: CommandReport) -> Prepared:
    last = _must_be_there(request, last, "take back")
    record = last.record
    if record.kind == "back":
        took = f"rollout {last.number} of {record.environment} took rollout {record.takes_back} back already"
        raise CommandError(f"There is nothing to take back: {took}.")
    touched = record.touched
    able = [plane for plane in touched if plane in record.good]
    if not touched:
        raise CommandError(f"There is nothing to take back: rollout {last.number} touched no plane.")
    if not able:
        do = "Roll an older definition out: take it from version control, and run `tidegate rollout` with it"
        none = f"no earlier rollout of {', '.join(touched)} succeeded"
        raise CommandError(f"There is nothing to go back to: {none}.\n{do}.")
    engine = _same_engine(request, record)
    sources = {plane: history.numbered(record.good[plane]) for plane in able}
    stacks, rendering = _of_kept_texts(request.environment, sources, engine, seen, check=False)
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


def _of_kept_texts(
    environment: str, sources: Mapping[str, Journal], engine: Engine, seen: CommandReport, *, check: bool
) -> tuple[dict[str, Stack], dict[str, Rendered]]:
    """Read what each plane is brought up from, and render it; with `check` the rules that may stop it hold too."""
    stacks: dict[str, Stack] = {}
    rendering: dict[str, Rendered] = {}
    read: dict[int, Definition] = {}
    for plane, journal in sources.items():
        number = journal.number
        try:
            definition = read[number] = read.get(number) or journal.definition()
        except DefinitionError as error:
            raise CommandError(f"this Tidegate cannot use rollout {number}'s definition any more:\n{error}") from None
        every = stacks_of(definition, environment)
        if journal.record.environment != environment or plane not in every:
            raise journal.damaged()
        stacks[plane] = every[plane]
        [rendering[plane]] = engine.render([every[plane]], definition)
    for definition in read.values() if check else ():  # one: a rollout that goes on is brought up from its own texts
        refuse_tags(definition, list(stacks.values()))
        seen.guardrails = findings(rendering.values())
        if said := enforce(seen.guardrails, _UNTOUCHED):
            note(said)
    return stacks, rendering


def _must_be_there(request: RolloutRequest, last: Journal | None, what: str) -> Journal:
    if last is None:
        folders = {path.parent.parent.name for path in request.journals.glob(f"*/*/{FILE}")}
        others = f" There are rollouts of: {listed(sorted(folders))}." if folders else ""
        where = escaped(str(request.journals))
        raise CommandError(f"There is no rollout of {request.environment} to {what} in {where}.{others}")
    return last


def _same_engine(request: RolloutRequest, record: RolloutRecord) -> Engine:
    if request.engine not in (None, record.engine):
        begun = f"The rollout was begun with {record.engine}, and goes on or back with the same"
        raise CommandError(f"{begun}; leave --engine out.", WRONG_INPUT)
    return find_engine(record.engine)
