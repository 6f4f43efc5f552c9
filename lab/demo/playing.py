"""Scenes, played one after the other. Each checks its claim."""

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
    """A claim of the demo did not hold."""


def claim(holds: object, otherwise: str) -> None:
    """Raise NotSoError with `otherwise`, unless a claim holds."""
    if not holds:
        raise NotSoError(otherwise)


def until(what: str, holds: Callable[[], object], seconds: float = 30.0) -> float:
    """Wait until something holds, and return the seconds. Raises NotSoError when it takes too long."""
    begun = time.monotonic()
    while not holds():
        claim(time.monotonic() - begun < seconds, f"{what}: not within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - begun


@dataclass(frozen=True)
class Scene(Generic[Stage]):
    """One claim that the demo shows. `play` returns the outcome as a sentence."""

    title: str
    claim: str
    play: Callable[[Stage], str]


def scene(scenes: list[Scene[Stage]], claim: str) -> Callable[[Callable[[Stage], str]], object]:
    """Add a function to the scenes. Its docstring is the title."""

    def add(play: Callable[[Stage], str]) -> Callable[[Stage], str]:
        scenes.append(Scene((play.__doc__ or "").removesuffix("."), claim, play))
        return play

    return add


def play(stage: Stage, show: Show, scenes: Sequence[Scene[Stage]], check: Callable[[], None]) -> None:
    """Play scenes, with a check after each. Exits with 1 at the first whose claim does not hold."""
    started = time.monotonic()
    for number, each in enumerate(scenes, 1):
        show.scene(f"{number}/{len(scenes)}  {each.title}", each.claim)
        begun = time.monotonic()
        try:
            with show.console.status("      …"):
                outcome = each.play(stage)
            check()
        except (NotSoError, TidegateError, OpenAIError, HTTPError, OSError) as error:
            show.failure(f"The claim does not hold: {error}")
            raise SystemExit(1) from None
        show.outcome(outcome, time.monotonic() - begun)
    show.print(f"\nAll {len(scenes)} claims hold. The demo took {time.monotonic() - started:.0f} s.")
