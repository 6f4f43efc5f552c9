"""Scenes that are played one after the other; each checks what it claims."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from openai import OpenAIError
from tidegate.errors import TidegateError
from urllib3.exceptions import HTTPError

from .show import Show

Stage = TypeVar("Stage")
_POLL_SECONDS = 0.05


class NotSoError(Exception):
    """Something that the demo claims did not hold."""


def claim(holds: object, otherwise: str) -> None:
    """Raise NotSoError, which says what is so instead, unless a claim holds."""
    if not holds:
        raise NotSoError(otherwise)


def until(what: str, holds: Callable[[], object], seconds: float = 30.0) -> float:
    """Wait until something holds; return after how many seconds it did. NotSoError when it takes too long."""
    begun = time.monotonic()
    while not holds():
        claim(time.monotonic() - begun < seconds, f"{what}: not after {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - begun


@dataclass(frozen=True)
class Outcome:
    """What came of a scene."""

    text: str
    short: str  # In a few words.


@dataclass(frozen=True)
class Scene(Generic[Stage]):
    """One thing that is shown."""

    title: str
    claim: str
    play: Callable[[Stage], Outcome]


def scene(scenes: list[Scene[Stage]], claim: str) -> Callable[[Callable[[Stage], Outcome]], object]:
    """Make the next scene of a function, called after it; its docstring is the title."""

    def add(play: Callable[[Stage], Outcome]) -> Callable[[Stage], Outcome]:
        scenes.append(Scene((play.__doc__ or "").removesuffix("."), claim, play))
        return play

    return add


@dataclass(frozen=True)
class Played:
    """One scene, and what came of it."""

    title: str
    ok: bool
    short: str
    seconds: float


def play(stage: Stage, show: Show, wanted: Sequence[Scene[Stage]], check: Callable[[], None]) -> list[Played]:
    """Play scenes, with a check after each; the first one that does not hold what it claims is the last."""
    played: list[Played] = []
    for number, each in enumerate(wanted, 1):
        show.scene(number, len(wanted), each.title, each.claim)
        begun = time.monotonic()
        try:
            with show.console.status("      …"):
                outcome = each.play(stage)
            check()
        except (NotSoError, TidegateError, OpenAIError, HTTPError, OSError) as error:
            show.failure(f"This did not hold: {error}")
            return [*played, Played(each.title, False, "", time.monotonic() - begun)]
        seconds = time.monotonic() - begun
        show.outcome(outcome.text, seconds)
        played.append(Played(each.title, True, outcome.short, seconds))
    return played


def all_hold(played: Sequence[Played]) -> bool:
    """Tell whether every scene held what it claims."""
    return all(each.ok for each in played)


def report(played: Sequence[Played], seconds: float, show: Show, more: str) -> None:
    """Print the table at the end, and what else there is; SystemExit with 1 where a scene did not hold."""
    if not all_hold(played):
        raise SystemExit(1)
    show.summary([(each.title, each.short, each.seconds) for each in played])
    show.say(f"All {len(played)} hold, in {seconds:.0f} s. {more}")
