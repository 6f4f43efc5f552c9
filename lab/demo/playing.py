"""Scenes that are played one after the other; each checks what it claims."""

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tidegate.errors import TidegateError
from tidegate_eviction.listing import ListingError

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
    short: str
    """In a few words."""
    figures: dict[str, Any]
    """The same, for programs."""


@dataclass(frozen=True)
class Scene(Generic[Stage]):
    """One thing that is shown."""

    name: str
    title: str
    claim: str
    play: Callable[[Stage], Outcome]


@dataclass(frozen=True)
class Played:
    """One scene, and what came of it."""

    name: str
    ok: bool
    text: str
    short: str
    seconds: float
    figures: dict[str, Any]


def play(stage: Stage, show: Show, wanted: Sequence[Scene[Stage]], check: Callable[[], None]) -> list[Played]:
    """Play scenes, with a check after each; the first one that does not hold what it claims is the last."""
    played: list[Played] = []
    for number, scene in enumerate(wanted, 1):
        show.scene(number, len(wanted), scene.title, scene.claim)
        begun = time.monotonic()
        try:
            with show.console.status("      …"):
                outcome = scene.play(stage)
            check()
        except (NotSoError, ListingError, TidegateError, OSError, http.client.HTTPException) as error:
            show.failure(f"This did not hold: {error}")
            return [*played, Played(scene.name, False, str(error), "", time.monotonic() - begun, {})]
        seconds = time.monotonic() - begun
        show.outcome(outcome.text, seconds)
        played.append(Played(scene.name, True, outcome.text, outcome.short, seconds, outcome.figures))
    return played


def all_hold(played: Sequence[Played]) -> bool:
    """Tell whether every scene held what it claims."""
    return all(each.ok for each in played)


def write(played: Sequence[Played], seconds: float, file: Path) -> None:
    """Write what came of it as JSON."""
    said = {"ok": all_hold(played), "seconds": seconds, "scenes": [asdict(each) for each in played]}
    file.write_text(json.dumps(said, indent=2) + "\n", "utf-8")


def summary(played: Sequence[Played], titles: Mapping[str, str], seconds: float, show: Show, more: str) -> bool:
    """Print the table at the end, and what else there is; return whether all held."""
    if not all_hold(played):
        return False
    show.summary([(titles[each.name], each.short, each.seconds) for each in played])
    show.say(f"All {len(played)} hold, in {seconds:.0f} s. {more}")
    return True
