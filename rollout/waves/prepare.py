"""Three ways to begin: a new rollout, one that goes on, one that takes another back. Nothing is touched here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stacks.command import WRONG_INPUT, CommandError
from stacks.problems import advisory_text, escaped, listed
from stacks.stack import Stack
from stacks.validate import read_definition

from ..contexts import refuse_tags
from ..engines import Engine, find_engine
from ..guardrails import enforce
from ..render import Rendered
from ..terminal import note
from .history import History, Past, Texts, texts_of
from .journal import FILE, Begin, Kind, now
from .kept import (
    UNTOUCHED,
    digest_of,
    of_kept_texts,
    refuse_other_definition,
    rendering_of,
    say,
    say_if_rendered_otherwise,
    say_what_changed,
)
from .plan import Plan, backwards, plan_of, stacks_of


@dataclass(frozen=True)
class Request:
    """What the command line says."""

    definition: Path
    environment: str
    start: str | None = None
    engine: str | None = None
    dry_run: bool = False
    resume: bool = False
    back: bool = False
    journals: Path = Path("build/rollout")


@dataclass(frozen=True)
class Prepared:
    """A rollout that can begin, or go on: everything that can be checked without touching a plane is checked."""

    begin: Begin
    engine: Engine
    stacks: Mapping[str, Stack]
    rendering: Mapping[str, Rendered]
    sources: Mapping[str, Past] | None
    """Whose kept texts each plane is brought up from; None for a rollout that is yet to begin."""
    texts: Texts | None
    past: Past | None
    """The rollout that goes on; None for a new one."""
    left: tuple[str, ...] = ()
    """Planes that cannot be taken back, because no earlier rollout of them succeeded."""


def refuse_contradictions(request: Request) -> None:
    """Raise CommandError for settings that cannot stand together, before any folder is made after them."""
    if request.resume and request.back:
        raise CommandError("RESUME and BACK cannot stand together: the one goes on, the other takes back.", WRONG_INPUT)
    if request.start and (request.resume or request.back):
        other = "RESUME" if request.resume else "BACK"
        raise CommandError(f"FROM and {other} cannot stand together: {other} knows where planes stand.", WRONG_INPUT)
    by_what_was_kept = request.resume or request.back
    if not by_what_was_kept or not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", request.environment):
        stacks_of(read_definition(request.definition), request.environment)


def prepared(request: Request, history: History) -> Prepared:
    """Return what is to be done; raise CommandError or DefinitionError when it cannot be."""
    last = history.last()
    if request.back:
        if last is not None and last.story.begin.kind == "back" and last.story.outcome != "succeeded":
            return _going_on(request, history, last)
        return _taking_back(request, history, last)
    if request.resume:
        return _going_on(request, history, last)
    return _new(request, history, last)


def _new(request: Request, history: History, last: Past | None) -> Prepared:
    texts = texts_of(request.definition)
    definition = read_definition(request.definition)
    if texts_of(request.definition) != texts:
        raise CommandError(f"{escaped(definition.file)} was written while it was being read; run this again.")
    every = stacks_of(definition, request.environment)
    plan = plan_of(list(every.values()), request.start)
    stacks = {plane: every[plane] for plane in plan.planes}
    refuse_tags(definition, list(stacks.values()))
    engine = find_engine(request.engine)
    rendering = rendering_of(stacks, definition)
    say(advisory_text(definition.advisories), enforce(list(rendering.values()), definition, outcome=UNTOUCHED))
    if last is not None:
        refuse_other_definition(request.definition, last)
        if last.story.outcome != "succeeded" and not request.dry_run:
            note(f"Rollout {last.number} did not succeed; this one begins anew.")
    good = {plane: number for plane in plan.planes if (number := history.good(plane)) is not None}
    begin = _begin(request, "forward", engine, plan, rendering, good).model_copy(update={"texts": texts.digests})
    return Prepared(begin, engine, stacks, rendering, None, texts, None)


def _going_on(request: Request, history: History, last: Past | None) -> Prepared:
    last = _must_be_there(request, last, "go on with")
    refuse_other_definition(request.definition, last)
    begin = last.story.begin
    if last.story.outcome == "succeeded":
        raise CommandError(f"There is nothing to go on with: rollout {last.number} of {begin.environment} succeeded.")
    engine = find_engine(_same_engine(request, begin))
    sources = {plane: history.numbered(begin.good[plane]) if begin.kind == "back" else last for plane in begin.planes}
    stacks, rendering = of_kept_texts(request.environment, sources, check=begin.kind == "forward")
    say_what_changed(request.definition, last, begin, rendering)
    return Prepared(begin, engine, stacks, rendering, sources, None, last)


def _taking_back(request: Request, history: History, last: Past | None) -> Prepared:
    last = _must_be_there(request, last, "take back")
    refuse_other_definition(request.definition, last)
    begin = last.story.begin
    if begin.kind == "back":
        raise CommandError(
            f"There is nothing to take back: rollout {last.number} of {begin.environment} took rollout "
            f"{begin.takes_back} back already."
        )
    touched = last.story.touched
    able = [plane for plane in touched if plane in begin.good]
    if not touched:
        raise CommandError(f"There is nothing to take back: rollout {last.number} touched no plane.")
    if not able:
        raise CommandError(
            f"There is nothing to go back to: no earlier rollout of {', '.join(touched)} succeeded.\nRoll an older "
            "definition out: take it from version control, and run `make rollout` with it."
        )
    engine = find_engine(_same_engine(request, begin))
    sources = {plane: history.numbered(begin.good[plane]) for plane in able}
    stacks, rendering = of_kept_texts(request.environment, sources, check=False)
    steps = backwards(begin.steps, able)
    good = {plane: begin.good[plane] for plane in able}
    new = _begin(request, "back", engine, Plan(steps), rendering, good).model_copy(
        update={"takes_back": last.number, "definition": begin.definition}
    )
    for past in {past.number: past for past in sources.values()}.values():
        objects = {plane: digest for plane, digest in past.story.begin.objects.items() if sources.get(plane) == past}
        say_if_rendered_otherwise(past, objects, new.objects)
    left = tuple(plane for plane in touched if plane not in able)
    return Prepared(new, engine, stacks, rendering, sources, Texts({}, ""), None, left)


def _begin(
    request: Request,
    kind: Kind,
    engine: Engine,
    plan: Plan,
    rendering: Mapping[str, Rendered],
    good: Mapping[str, int],
) -> Begin:
    return Begin.model_validate(
        {
            "at": now(),
            "kind": kind,
            "environment": request.environment,
            "definition": str(request.definition),
            "engine": engine.name,
            "steps": plan.steps,
            "left_out": plan.left_out,
            "texts": {},
            "objects": {plane: digest_of(item) for plane, item in rendering.items()},
            "good": dict(good),
        }
    )


def _same_engine(request: Request, begin: Begin) -> str:
    if request.engine not in (None, begin.engine):
        raise CommandError(
            f"The rollout was begun with {begin.engine}, and goes on or back with the same; leave ENGINE out.",
            WRONG_INPUT,
        )
    return begin.engine


def _must_be_there(request: Request, last: Past | None, what: str) -> Past:
    if last is None:
        folders = {path.parent.parent.name for path in request.journals.glob(f"*/*/{FILE}")}
        others = f" There are rollouts of: {listed(sorted(folders))}." if folders else ""
        where = escaped(str(request.journals))
        raise CommandError(f"There is no rollout of {request.environment} to {what} in {where}.{others}")
    return last
