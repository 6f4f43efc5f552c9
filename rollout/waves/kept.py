"""The texts that rollouts keep: read and evaluated again, and how they and Tidegate have changed since."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from stacks.command import CommandError
from stacks.problems import DefinitionError, escaped, listed
from stacks.stack import Definition, Stack

from ..contexts import refuse_tags
from ..guardrails import enforce
from ..render import Rendered, render
from ..terminal import note
from .history import Past, texts_of
from .journal import FILE, Begin, damaged
from .plan import stacks_of

UNTOUCHED = "no plane was touched"


def of_kept_texts(
    environment: str, sources: Mapping[str, Past], *, check: bool
) -> tuple[dict[str, Stack], dict[str, Rendered]]:
    """Read what each plane is brought up from, and evaluate it; with `check` the rules that may stop it hold too."""
    stacks: dict[str, Stack] = {}
    rendering: dict[str, Rendered] = {}
    for number in dict.fromkeys(past.number for past in sources.values()):
        planes = [plane for plane, past in sources.items() if past.number == number]
        try:
            definition = sources[planes[0]].definition()
        except DefinitionError as error:
            raise CommandError(
                f"this Tidegate cannot use the definition of rollout {number} any more:\n{error}"
            ) from None
        every = stacks_of(definition, environment)
        past = sources[planes[0]]
        if past.story.begin.environment != environment or not {*planes} <= every.keys():
            raise damaged(past.folder / FILE, 1)
        own = {plane: every[plane] for plane in planes}
        made = rendering_of(own, definition)
        if check:
            refuse_tags(definition, list(own.values()))
            say(enforce(list(made.values()), definition, outcome=UNTOUCHED))
        stacks |= own
        rendering |= made
    return {plane: stacks[plane] for plane in sources}, {plane: rendering[plane] for plane in sources}


def rendering_of(stacks: Mapping[str, Stack], definition: Definition) -> dict[str, Rendered]:
    """Evaluate the stacks of some planes."""
    return {plane: render(stack, definition.lock, definition.file) for plane, stack in stacks.items()}


def digest_of(rendered: Rendered) -> str:
    """Return the SHA-256 of what a stack renders to."""
    return hashlib.sha256(json.dumps(rendered.objects, sort_keys=True).encode()).hexdigest()


def refuse_other_definition(definition: Path, last: Past) -> None:
    """Raise CommandError where the folder holds the rollouts of another definition."""
    theirs = last.story.begin.definition
    if Path(theirs).resolve() != definition.resolve():
        raise CommandError(
            f"{escaped(str(last.folder.parent))} holds the rollouts of {escaped(theirs)}, and not of "
            f"{escaped(str(definition))}.\nName that definition with DEFINITION=<file>, or move the folder "
            "away."
        )


def say_what_changed(definition: Path, last: Past, begin: Begin, rendering: Mapping[str, Rendered]) -> None:
    """Say that a rollout goes on, and what has changed since it began."""
    note(f"Rollout {last.number} of {begin.environment}, begun at {begin.at}, goes on.")
    if begin.kind == "forward":
        try:
            same = texts_of(definition).digests == dict(begin.texts)
        except OSError:
            same = False
        if not same:
            note(
                f"{escaped(str(definition))} or images.lock was edited since; it goes on with the texts that "
                "it began with.\nFor the new ones begin a new rollout, without RESUME."
            )
    say_if_rendered_otherwise(last, begin.objects, {plane: digest_of(item) for plane, item in rendering.items()})


def say_if_rendered_otherwise(past: Past, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Say for which planes the same text gives other objects than it did; both are digests by plane."""
    other = [plane for plane in before if plane in after and before[plane] != after[plane]]
    if other:
        note(
            f"Tidegate itself has changed since rollout {past.number} began: of the same definition it makes other "
            f"objects for {listed(other, most=8)}."
        )


def say(*texts: str) -> None:
    """Say what is not empty."""
    for text in texts:
        if text:
            note(text)
